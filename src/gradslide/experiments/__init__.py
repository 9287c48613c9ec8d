"""From a spec to runs, tables and plots."""

"""Costs against 1/eps."""

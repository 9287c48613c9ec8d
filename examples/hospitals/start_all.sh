#!/bin/sh
# For trying out on one machine: all four sites at once. At real sites each one runs its one command itself.
cd "$(dirname "$0")"
for site in north east south; do
    gradslide agent "$site/AGENT.toml" --quiet &
done
gradslide agent west/AGENT.toml
wait

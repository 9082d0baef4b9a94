#!/bin/bash
# Description: the catalogue of deadlocks by our rules.
RULES=ours exec "$(dirname "$0")/catalogue.sh"

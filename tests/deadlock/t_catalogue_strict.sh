#!/bin/bash
# Description: the catalogue of deadlocks by ours with strict order and no release.
RULES=strict exec "$(dirname "$0")/catalogue.sh"

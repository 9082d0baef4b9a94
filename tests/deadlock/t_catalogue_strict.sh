#!/bin/bash
# Description: the catalogue of deadlocks by dfshim's rules with strict stream order and no release.
RULES=strict exec "$(dirname "$0")/catalogue.sh"

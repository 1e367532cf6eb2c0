#!/bin/sh
# Shrinks a number: a shell script that reports by appending to a file, and keeps a checkpoint.
x=1024 epoch=0
if [ -n "$TUNE_CHECKPOINT_DIR" ]; then
    read -r epoch x < "$TUNE_CHECKPOINT_DIR/state"
fi
while [ "$epoch" -lt "$1" ]; do
    sleep "${2:-0}"
    epoch=$((epoch + 1)) x=$(awk "BEGIN { print $x * (1 - $TUNE_PARAM_RATE) }")
    mkdir -p "state_$epoch" && echo "$epoch $x" > "state_$epoch/state"
    echo "{\"step\": $epoch, \"loss\": $x, \"checkpoint\": \"state_$epoch\"}" >> "$TUNE_REPORTS"
done

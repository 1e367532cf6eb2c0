# Fits y = 3x by gradient descent, from the newest checkpoint: an example of a `command`.
#
#     awk -v rate=0.1 -v momentum=0.9 -v epochs=9 -f command.awk

BEGIN {
    folder = ENVIRON["TUNE_CHECKPOINT_DIR"]
    if (folder) getline state < (folder "/state")
    split(state, values)
    weight = values[1] + 0; speed = values[2] + 0; epoch = values[3] + 0
    reports = ENVIRON["TUNE_REPORTS"]
    if (!reports) reports = "/dev/stdout"
    while (++epoch <= epochs) {
        speed = momentum * speed - rate * 2 * (weight - 3)
        weight += speed
        folder = "checkpoint_" epoch      # a new one each time: awk does not wait for the answer
        system("mkdir -p " folder)
        printf "%.17g %.17g %d\n", weight, speed, epoch > (folder "/state")
        close(folder "/state")
        printf "{\"step\": %d, \"loss\": %.17g, \"checkpoint\": \"%s\"}\n", \
            epoch, (weight - 3) ^ 2, folder >> reports
        close(reports)
    }
}

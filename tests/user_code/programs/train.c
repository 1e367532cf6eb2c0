/* Fits y = 3x by gradient descent; reports and keeps checkpoints with the standard library only. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

int main(int argc, char **argv) {
    double rate = atof(argv[1]), weight = 0;
    int epoch = 0, last = argc > 2 ? atoi(argv[2]) : 8;
    char path[4096];
    const char *saved = getenv("TUNE_CHECKPOINT_DIR");
    if (saved && *saved) {
        snprintf(path, sizeof path, "%s/state", saved);
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%d %lf", &epoch, &weight) != 2) return 1;
        fclose(file);
    }
    while (epoch++ < last) {
        struct timespec pause = {0, 200000000};
        nanosleep(&pause, NULL); /* the work of an epoch */
        weight -= rate * 2 * (weight - 3);
        snprintf(path, sizeof path, "state_%d", epoch);
        mkdir(path, 0700);
        snprintf(path, sizeof path, "state_%d/state", epoch);
        FILE *file = fopen(path, "w");
        fprintf(file, "%d %.17g\n", epoch, weight);
        fclose(file);
        FILE *reports = fopen(getenv("TUNE_REPORTS"), "a");
        fprintf(reports, "{\"step\": %d, \"loss\": %.17g, \"checkpoint\": \"state_%d\"}\n", epoch,
                (weight - 3) * (weight - 3), epoch);
        fclose(reports);
    }
    return 0;
}

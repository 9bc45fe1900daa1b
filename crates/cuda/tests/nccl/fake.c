// In the place of NCCL: communicators that add nothing up, and say how often they were given back.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct comm {
    int failed;
};

static int aborted, destroyed;
static char last[64];

int ncclGetVersion(int* version) { return *version = 22803, 0; }
const char* ncclGetErrorString(int status) { return status == 5 ? "invalid usage" : "remote process exited"; }
const char* ncclGetLastError(struct comm* comm) {
    snprintf(last, sizeof last, "%d given up, %d destroyed\n", aborted, destroyed);
    return last;
}
int ncclCommInitAll(struct comm** comms, int count, const int* devices) {
    // a GPU twice
    if (count > 1 && devices[0] == devices[1]) return 5;
    for (int i = 0; i < count; i++) comms[i] = calloc(1, sizeof *comms[i]);
    return 0;
}
// Of 13 numbers it wants nothing, 99 are more than it can do, 7 take long.
int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, struct comm* comm, void* stream) {
    if (count == 99) comm->failed = 6;
    if (count == 7) usleep(300000);
    return count == 13 ? 5 : 0;
}
int ncclCommGetAsyncError(struct comm* comm, int* status) { return *status = comm->failed, 0; }
int ncclCommDestroy(struct comm* comm) { return destroyed++, free(comm), 0; }
int ncclCommAbort(struct comm* comm) { return usleep(50000), aborted++, free(comm), 0; }

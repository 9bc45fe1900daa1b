// A library that answers as NVML does, of one card, and how it is joined to two more; a word in the file STATE says how it is.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int is(const char* word) {
    char text[32] = {0};
    FILE* file = fopen(STATE, "r");
    if (!file) return 0;
    fgets(text, sizeof text, file);
    fclose(file);
    return strcmp(text, word) == 0;
}

// What every question is answered with: 15 is a card that is lost. A driver that hangs does not answer at all.
static int status(void) {
    while (is("silent")) usleep(10000);
    return is("lost") ? 15 : 0;
}

static int number(unsigned* out, unsigned value) {
    *out = value;
    return status();
}

int nvmlInit_v2(void) { return 0; }
const char* nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "Not Found"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* place, void** card) {
    const char* places[] = {"0000:17:00.0", "0000:65:00.0", "0000:ca:00.0"};
    for (long i = 0; i < 3; i++) {
        *card = (void*)(i + 1);
        if (strcmp(place, places[i]) == 0) return 0;
    }
    return 6;
}
int nvmlDeviceGetTemperature(void* card, int sensor, unsigned* out) { return number(out, 61); }
int nvmlDeviceGetPowerUsage(void* card, unsigned* out) { return number(out, 412500); }
int nvmlDeviceGetEnforcedPowerLimit(void* card, unsigned* out) { return number(out, 600000); }
int nvmlDeviceGetPowerManagementDefaultLimit(void* card, unsigned* out) { return number(out, 700000); }
int nvmlDeviceGetClockInfo(void* card, int kind, unsigned* out) { return number(out, kind == 1 ? 1755 : 3201); }
int nvmlDeviceGetMaxClockInfo(void* card, int kind, unsigned* out) { return number(out, kind == 1 ? 1980 : 3201); }
int nvmlDeviceGetPcieReplayCounter(void* card, unsigned* out) { return number(out, 3); }
int nvmlDeviceGetTotalEccErrors(void* card, int kind, int counter, unsigned long long* out) {
    *out = kind == 0 ? 5 : 0;
    return status();
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* card, unsigned long long* out) {
    *out = is("hot") ? 0x40 : 0x1;
    return status();
}
int nvmlEventSetCreate(void** set) {
    *set = (void*)2;
    return 0;
}
int nvmlDeviceRegisterEvents(void* card, unsigned long long kinds, void* set) { return kinds == 8 ? 0 : 2; }
struct event { void* card; unsigned long long kind, data; unsigned instances[2]; };
int nvmlEventSetWait_v2(void* set, struct event* out, unsigned timeout) {
    static int told;
    if (!is("xid") || told++) return 10;
    struct event event = {(void*)1, 8, 63, {0, 0}};
    *out = event;
    return 0;
}

// A library that is older than these questions does not have them; a driver may not answer them: 3 is what it does not support.
#ifndef OLD
static int level(void) {
    int level = 10;
    FILE* file = fopen(STATE, "r");
    if (!file) return level;
    fscanf(file, "level %d", &level);
    fclose(file);
    return level;
}
int nvmlDeviceGetTopologyCommonAncestor(void* one, void* other, int* out) {
    *out = level();
    return is("no topology") ? 3 : status();
}
// The first two have NVLink between them: 0, where 5 is what is not supported.
int nvmlDeviceGetP2PStatus(void* one, void* other, int what, int* out) {
    *out = what == 2 && (long)one + (long)other == 3 ? 0 : 5;
    return is("no peers") ? 3 : status();
}
#endif

// What clock_watch_test loads in place of libnvidia-ml.so.1: it answers what the test asks it to.
#include <cstring>

extern "C" {

unsigned stand_in_mhz = 0;
unsigned long long stand_in_reasons = 0;
int stand_in_status = 0;

int nvmlInit_v2() {
  return stand_in_status;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  *device = &stand_in_mhz;
  return std::strcmp(bus_id, "0000:1B:00.0") == 0 ? 0 : 6;  // not found
}

int nvmlDeviceGetClockInfo(void* device, int kind, unsigned* mhz) {
  if (device != &stand_in_mhz || kind != 1) return 2;  // invalid argument
  *mhz = stand_in_mhz;
  return stand_in_status;
}

// The name that drivers before 535 know.
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  if (device != &stand_in_mhz) return 2;
  *reasons = stand_in_reasons;
  return stand_in_status;
}
}

/* A libcuda.so.1 that is none: the entry points of the CUDA driver that pycuda and cuda-bindings call, with memory of the host, and kernels that the
   emulator compiled from the source of the image (fake_cuda_loader.py finds it). It is as strict as a device, and as lazy:

   - what a device does after the call returned is done as late as it may be: when somebody waits. Results that are read before are not there.
   - memory is poisoned, ends at a page that traps, and its address is never used again. What a kernel does to other memory, or with an address that is
     none of the device's, is an illegal access, after which every call of the context fails, as on a device.
   - handles are checked: of the current context, not yet given back.

   Time is a model, not a measurement: a launch takes 1 ms and its arrays 4 TB/s, so that a benchmark makes few launches.

   FAKE_CUDA_CAPABILITY  of the device: 90
   FAKE_CUDA_DEVICES     how many there are: 1
   FAKE_CUDA_FAILS       kernels whose names begin so make an illegal access
   FAKE_CUDA_HANGS       kernels whose names begin so never end
   FAKE_CUDA_REPORT      a file that gets a line at the end of the process: what was launched, and what was never given back */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime.h" /* of the emulator: Launch */

#define API extern "C" __attribute__((visibility("default"))) int

namespace {

enum Result {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209, INVALID_PTX = 218, UNSUPPORTED_PTX_VERSION = 222, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801, UNKNOWN = 999
};
struct Words { int code; const char *name, *text; };
const Words WORDS[] = {
  {SUCCESS, "CUDA_SUCCESS", "no error"}, {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
  {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}, {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
  {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}, {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
  {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}, {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
  {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
  {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
  {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
  {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}, {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
  {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"}, {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
  {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
  {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}, {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
  {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

int number(const char* name, int usual) {
  const char* text = getenv(name);
  return text && *text ? atoi(text) : usual;
}
int capability() { return number("FAKE_CUDA_CAPABILITY", 90); }
int device_count() { return number("FAKE_CUDA_DEVICES", 1); }

constexpr uint64_t PAGE = 4096, ALIGNMENT = 256, DEVICE_BYTES = 4ull << 30;
constexpr int STATIC_SHARED = 48 << 10, OPTIN_SHARED = 227 << 10, L2_BYTES = 1 << 16, REGISTERS = 65536;
constexpr unsigned char POISON = 0xff, MARK = 0xa5;

}  // namespace

/* fake_cuda_loader.py has the same structures. */
struct KernelInfo {
  const char* name;
  void (*entry)(void**);
  uint32_t parameter_count, registers, static_shared, unused;
  const uint32_t* sizes;    /* bytes of each parameter */
  const uint32_t* pointers; /* whether it is one */
};
struct GlobalInfo { /* a variable of the module in device memory */
  const char* name;
  uint64_t address, size;
};
struct ImageInfo {
  uint32_t kernel_count, global_count;
  const KernelInfo* kernels;
  const GlobalInfo* globals;
  emulator::Run* (*start)(emulator::Launch*);
  int (*wait)(emulator::Run*, double);
  void (*finish)(emulator::Run*);
};
typedef const ImageInfo* Loader(const void* image, uint64_t size);

namespace {

struct Context;
struct Allocation { uint64_t size, map, map_size; };
struct Module { Context* context; const ImageInfo* info; };
struct Function { Context* context; Module* module; const KernelInfo* kernel; const ImageInfo* info; int most_dynamic; };
struct Event { Context* context; bool recorded; std::shared_ptr<double> time; }; /* time: below 0 while it has not happened */

struct Context {
  int device = 0, users = 0, failed = SUCCESS;
  double clock = 0;
  uint64_t used = 0;
  std::map<uint64_t, Allocation> memory; /* and variables of modules, which have no map */
  std::vector<std::function<int()>> waiting;

  Allocation* at(uint64_t address, uint64_t size) {
    auto found = memory.upper_bound(address);
    if (found == memory.begin()) return nullptr;
    --found;
    return address + size <= found->first + found->second.size && address < found->first + found->second.size ? &found->second : nullptr;
  }
  int drain() { /* do what was put off */
    std::vector<std::function<int()>> now;
    now.swap(waiting);
    for (auto& work : now)
      if (!failed) failed = work();
    return failed;
  }
};

std::recursive_mutex everything;
bool initialised;
std::map<int, Context*> primary;
std::set<Module*> modules;
std::set<Function*> functions;
std::set<Event*> events;
thread_local std::vector<Context*> stack;
Loader* loader;
uint64_t launches, most_events;

Context* current() { return stack.empty() ? nullptr : stack.back(); }
bool is_context(Context* context) {
  for (auto& each : primary)
    if (each.second == context && context->users > 0) return true;
  return false;
}

/* What most entry points begin with. */
#define ENTER()                                                 \
  std::lock_guard<std::recursive_mutex> hold(everything);       \
  if (!initialised) return NOT_INITIALIZED;                     \
  Context* const context = current();                           \
  if (!context || !is_context(context)) return INVALID_CONTEXT; \
  if (context->failed) return context->failed

void say(const char* format, const char* what, uint64_t number = 0) {
  fprintf(stderr, "fake CUDA driver: ");
  fprintf(stderr, format, what, (unsigned long long)number);
  fprintf(stderr, "\n");
}

void write_report() {
  const char* path = getenv("FAKE_CUDA_REPORT");
  FILE* file = path ? fopen(path, "a") : nullptr;
  if (!file) return;
  uint64_t kept = 0;
  for (auto& each : primary)
    for (auto& memory : each.second->memory) kept += memory.second.map != 0;
  fprintf(file, "{\"launches\": %llu, \"modules\": %zu, \"events\": %zu, \"most_events\": %llu, \"allocations\": %llu}\n", (unsigned long long)launches, modules.size(),
          events.size(), (unsigned long long)most_events, (unsigned long long)kept);
  fclose(file);
}

uint64_t image_bytes(const unsigned char* image) {
  if (memcmp(image, "\x7f" "ELF", 4)) return strlen(reinterpret_cast<const char*>(image));
  uint64_t segments, sections;
  uint16_t sizes[4];
  memcpy(&segments, image + 32, 8);
  memcpy(&sections, image + 40, 8);
  memcpy(sizes, image + 54, 8);
  const uint64_t a = segments + sizes[0] * sizes[1], b = sections + sizes[2] * sizes[3];
  return a > b ? a : b;
}

/* Whether the device can run an image. */
int image_status(const unsigned char* image) {
  if (!memcmp(image, "\x7f" "ELF", 4)) {
    uint32_t flags;
    memcpy(&flags, image + 48, 4);
    const int built = image[8] >= 8 ? flags >> 8 & 0xff : flags & 0xff;
    return built / 10 == capability() / 10 && built <= capability() ? SUCCESS : NO_BINARY_FOR_GPU;
  }
  const char* target = strstr(reinterpret_cast<const char*>(image), ".target sm_");
  if (!target) return INVALID_IMAGE;
  return atoi(target + 11) <= capability() ? SUCCESS : INVALID_PTX;
}

Loader* find_loader() {
  if (loader) return loader;
  auto ensure = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
  auto release = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
  auto run = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_DEFAULT, "PyRun_SimpleString"));
  if (!ensure || !release || !run) return nullptr;
  const int state = ensure();
  run("__import__('fake_cuda_loader').install()");
  release(state);
  return loader;
}

bool is_named(const char* kernel, const char* variable) {
  const char* name = getenv(variable);
  return name && *name && !strncmp(kernel, name, strlen(name));
}

struct Work { /* a launch, with its arguments as they were when it was made */
  Context* context;
  const KernelInfo* kernel;
  const ImageInfo* info;
  unsigned grid[3], block[3], dynamic_shared;
  std::vector<uint64_t> values;

  int operator()() {
    if (is_named(kernel->name, "FAKE_CUDA_FAILS")) return ILLEGAL_ADDRESS;
    while (is_named(kernel->name, "FAKE_CUDA_HANGS")) sleep(1);
    double bytes = 0;
    std::vector<void*> arguments;
    for (uint32_t n = 0; n < kernel->parameter_count; ++n) {
      arguments.push_back(&values[n]);
      if (!kernel->pointers[n] || !values[n]) continue;
      const Allocation* memory = context->at(values[n], 1);
      if (!memory) {
        say("%s was given %#llx, which is no address of this device's", kernel->name, values[n]);
        return ILLEGAL_ADDRESS;
      }
      bytes += double(memory->size);
    }
    emulator::Launch launch{};
    launch.entry = kernel->entry;
    launch.arguments = arguments.data();
    memcpy(launch.grid, grid, sizeof grid);
    memcpy(launch.block, block, sizeof block);
    launch.dynamic_bytes = dynamic_shared;
    const uint64_t blocks = uint64_t(grid[0]) * grid[1] * grid[2], workers = uint64_t(sysconf(_SC_NPROCESSORS_ONLN));
    launch.workers = unsigned(blocks < workers ? blocks : workers);
    emulator::Run* run = info->start(&launch);
    while (!info->wait(run, 1.0)) {
    }
    info->finish(run);
    context->clock += 1e-3 + bytes / 4e12;
    if (!launch.error_kind) return SUCCESS;
    say("%s failed in the emulator (error %llu)", kernel->name, launch.error_kind);
    say("  %s", launch.error_text);
    return launch.error_kind == emulator::ERROR_SIGNAL || launch.error_kind == emulator::ERROR_WILD ? ILLEGAL_ADDRESS : LAUNCH_FAILED;
  }
};

}  // namespace

API fake_cuda_set_loader(Loader* given) {
  loader = given;
  return SUCCESS;
}

/* Work of others, who run their kernels elsewhere, takes time too. */
API fake_cuda_pass(double seconds) {
  ENTER();
  context->waiting.push_back([=] {
    context->clock += seconds;
    return SUCCESS;
  });
  return SUCCESS;
}

/* ---- errors, versions, devices */

API cuInit(unsigned flags) {
  std::lock_guard<std::recursive_mutex> hold(everything);
  if (flags) return INVALID_VALUE;
  if (device_count() == 0) return NO_DEVICE;
  if (!initialised) atexit(write_report);
  initialised = true;
  return SUCCESS;
}
API cuDriverGetVersion(int* version) { *version = 13000; return SUCCESS; }
API cuGetErrorName(int code, const char** text) {
  *text = nullptr;
  for (auto& each : WORDS)
    if (each.code == code) *text = each.name;
  return *text ? SUCCESS : INVALID_VALUE;
}
API cuGetErrorString(int code, const char** text) {
  *text = nullptr;
  for (auto& each : WORDS)
    if (each.code == code) *text = each.text;
  return *text ? SUCCESS : INVALID_VALUE;
}
API cuDeviceGetCount(int* count) { *count = device_count(); return initialised ? SUCCESS : NOT_INITIALIZED; }
API cuDeviceGet(int* device, int ordinal) {
  if (!initialised) return NOT_INITIALIZED;
  if (ordinal < 0 || ordinal >= device_count()) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}
API cuDeviceGetName(char* name, int length, int) { snprintf(name, size_t(length), "Fake GPU"); return SUCCESS; }
API cuDeviceTotalMem_v2(size_t* bytes, int) { *bytes = DEVICE_BYTES; return SUCCESS; }
API cuDeviceComputeCapability(int* major, int* minor, int) {
  *major = capability() / 10;
  *minor = capability() % 10;
  return SUCCESS;
}
API cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device < 0 || device >= device_count()) return INVALID_DEVICE;
  switch (attribute) {
    case 1: *value = 1024; return SUCCESS;           /* threads of a block */
    case 8: *value = STATIC_SHARED; return SUCCESS;
    case 10: *value = 32; return SUCCESS;            /* threads of a warp */
    case 12: *value = REGISTERS; return SUCCESS;
    case 16: *value = 132; return SUCCESS;           /* multiprocessors */
    case 38: *value = L2_BYTES; return SUCCESS;
    case 75: *value = capability() / 10; return SUCCESS;
    case 76: *value = capability() % 10; return SUCCESS;
    case 97: *value = OPTIN_SHARED; return SUCCESS;
    default: say("attribute%s %llu is not known here", "", uint64_t(attribute)); return INVALID_VALUE;
  }
}

/* ---- contexts */

API cuDevicePrimaryCtxRetain(Context** context, int device) {
  std::lock_guard<std::recursive_mutex> hold(everything);
  if (!initialised) return NOT_INITIALIZED;
  if (device < 0 || device >= device_count()) return INVALID_DEVICE;
  if (!primary.count(device)) primary[device] = new Context;
  primary[device]->device = device;
  ++primary[device]->users;
  *context = primary[device];
  return SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(int device) {
  std::lock_guard<std::recursive_mutex> hold(everything);
  if (!primary.count(device) || primary[device]->users == 0) return INVALID_CONTEXT;
  --primary[device]->users;
  return SUCCESS;
}
API cuCtxPushCurrent_v2(Context* context) {
  std::lock_guard<std::recursive_mutex> hold(everything);
  if (!initialised) return NOT_INITIALIZED;
  if (!is_context(context)) return INVALID_CONTEXT;
  stack.push_back(context);
  return SUCCESS;
}
API cuCtxPopCurrent_v2(Context** context) {
  if (stack.empty()) return INVALID_CONTEXT;
  if (context) *context = stack.back();
  stack.pop_back();
  return SUCCESS;
}
API cuCtxGetCurrent(Context** context) { *context = current(); return SUCCESS; }
API cuCtxSetCurrent(Context* context) {
  std::lock_guard<std::recursive_mutex> hold(everything);
  if (!stack.empty()) stack.pop_back();
  if (!context) return SUCCESS;
  if (!is_context(context)) return INVALID_CONTEXT;
  stack.push_back(context);
  return SUCCESS;
}
API cuCtxGetDevice(int* device) {
  ENTER();
  *device = context->device;
  return SUCCESS;
}
API cuCtxDetach(Context*) { return INVALID_CONTEXT; } /* none is ever attached to */
API cuCtxSynchronize() {
  ENTER();
  return context->drain();
}

/* ---- memory */

API cuMemAlloc_v2(uint64_t* address, size_t size) {
  ENTER();
  if (!size) return INVALID_VALUE;
  if (context->used + size > DEVICE_BYTES) return OUT_OF_MEMORY;
  const uint64_t room = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, pages = (room + PAGE - 1) / PAGE * PAGE;
  char* map = static_cast<char*>(mmap(nullptr, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (map == MAP_FAILED || mprotect(map + PAGE, pages, PROT_READ | PROT_WRITE)) return OUT_OF_MEMORY;
  char* begin = map + PAGE + pages - room;
  memset(begin, POISON, size);
  memset(begin + size, MARK, room - size);
  *address = reinterpret_cast<uint64_t>(begin);
  context->memory[*address] = {size, reinterpret_cast<uint64_t>(map), pages + 2 * PAGE};
  context->used += size;
  return SUCCESS;
}
API cuMemFree_v2(uint64_t address) {
  ENTER();
  if (context->drain()) return context->failed;
  auto found = context->memory.find(address);
  if (found == context->memory.end() || !found->second.map) return INVALID_VALUE;
  const Allocation memory = found->second;
  for (uint64_t n = memory.size; (address + n) % ALIGNMENT; ++n) {
    if (reinterpret_cast<unsigned char*>(address)[n] == MARK) continue;
    say("the memory at %s%#llx was written beyond its end", "", address);
    return context->failed = ILLEGAL_ADDRESS;
  }
  context->used -= memory.size;
  context->memory.erase(found);
  /* the addresses stay taken, without memory */
  mmap(reinterpret_cast<void*>(memory.map), memory.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return SUCCESS;
}
API cuMemGetInfo_v2(size_t* available, size_t* total) {
  ENTER();
  *available = DEVICE_BYTES - context->used;
  *total = DEVICE_BYTES;
  return SUCCESS;
}
API cuMemcpyHtoD_v2(uint64_t address, const void* host, size_t size) {
  ENTER();
  if (context->drain()) return context->failed;
  if (size && (!context->at(address, size) || context->at(reinterpret_cast<uint64_t>(host), 1))) return INVALID_VALUE;
  memcpy(reinterpret_cast<void*>(address), host, size);
  return SUCCESS;
}
API cuMemcpyDtoH_v2(void* host, uint64_t address, size_t size) {
  ENTER();
  if (context->drain()) return context->failed;
  if (size && (!context->at(address, size) || context->at(reinterpret_cast<uint64_t>(host), 1))) return INVALID_VALUE;
  memcpy(host, reinterpret_cast<void*>(address), size);
  return SUCCESS;
}
API cuMemsetD8_v2(uint64_t address, unsigned char value, size_t size) {
  ENTER();
  if (size && !context->at(address, size)) return INVALID_VALUE;
  context->waiting.push_back([=] {
    memset(reinterpret_cast<void*>(address), value, size);
    context->clock += 1e-6;
    return SUCCESS;
  });
  return SUCCESS;
}

/* ---- events */

API cuEventCreate(Event** event, unsigned) {
  ENTER();
  *event = new Event{context, false, std::make_shared<double>(-1)};
  events.insert(*event);
  if (events.size() > most_events) most_events = events.size();
  return SUCCESS;
}
API cuEventDestroy_v2(Event* event) {
  std::lock_guard<std::recursive_mutex> hold(everything);
  if (!events.count(event)) return INVALID_HANDLE;
  events.erase(event);
  delete event;
  return SUCCESS;
}
API cuEventRecord(Event* event, void*) {
  ENTER();
  if (!events.count(event) || event->context != context) return INVALID_HANDLE;
  event->recorded = true;
  event->time = std::make_shared<double>(-1);
  context->waiting.push_back([context, time = event->time] {
    *time = context->clock;
    return SUCCESS;
  });
  return SUCCESS;
}
API cuEventQuery(Event* event) {
  ENTER();
  if (!events.count(event)) return INVALID_HANDLE;
  return !event->recorded || *event->time >= 0 ? SUCCESS : NOT_READY;
}
API cuEventSynchronize(Event* event) {
  ENTER();
  if (!events.count(event)) return INVALID_HANDLE;
  return context->drain();
}
API cuEventElapsedTime(float* milliseconds, Event* first, Event* second) {
  ENTER();
  if (!events.count(first) || !events.count(second) || !first->recorded || !second->recorded) return INVALID_HANDLE;
  if (*first->time < 0 || *second->time < 0) return NOT_READY;
  *milliseconds = float(1e3 * (*second->time - *first->time));
  return SUCCESS;
}
API cuEventElapsedTime_v2(float* milliseconds, Event* first, Event* second) { return cuEventElapsedTime(milliseconds, first, second); }

/* ---- modules and kernels */

API cuModuleLoadData(Module** module, const void* image) {
  ENTER();
  const unsigned char* bytes = static_cast<const unsigned char*>(image);
  if (const int status = image_status(bytes)) return status;
  if (!find_loader()) return say("this is no process of Python%s with fake_cuda_loader", ""), UNKNOWN;
  const ImageInfo* info = loader(image, image_bytes(bytes));
  if (!info) return INVALID_IMAGE;
  *module = new Module{context, info};
  modules.insert(*module);
  for (uint32_t n = 0; n < info->global_count; ++n) context->memory[info->globals[n].address] = {info->globals[n].size, 0, 0};
  return SUCCESS;
}
API cuModuleLoadDataEx(Module** module, const void* image, unsigned, void*, void*) { return cuModuleLoadData(module, image); }
API cuModuleUnload(Module* module) {
  ENTER();
  if (!modules.count(module) || module->context != context) return INVALID_HANDLE;
  if (context->drain()) return context->failed;
  for (auto each = functions.begin(); each != functions.end();) each = (*each)->module == module ? functions.erase(each) : std::next(each);
  for (uint32_t n = 0; n < module->info->global_count; ++n) context->memory.erase(module->info->globals[n].address);
  modules.erase(module);
  return SUCCESS;
}
API cuModuleGetFunction(Function** function, Module* module, const char* name) {
  ENTER();
  if (!modules.count(module) || module->context != context) return INVALID_HANDLE;
  for (uint32_t n = 0; n < module->info->kernel_count; ++n) {
    const KernelInfo* kernel = &module->info->kernels[n];
    if (strcmp(kernel->name, name)) continue;
    *function = new Function{context, module, kernel, module->info, STATIC_SHARED - int(kernel->static_shared)};
    functions.insert(*function);
    return SUCCESS;
  }
  return NOT_FOUND;
}
API cuModuleGetGlobal_v2(uint64_t* address, size_t* size, Module* module, const char* name) {
  ENTER();
  if (!modules.count(module) || module->context != context) return INVALID_HANDLE;
  for (uint32_t n = 0; n < module->info->global_count; ++n) {
    const GlobalInfo* global = &module->info->globals[n];
    if (strcmp(global->name, name)) continue;
    if (address) *address = global->address;
    if (size) *size = global->size;
    return SUCCESS;
  }
  return NOT_FOUND;
}
API cuFuncSetAttribute(Function* function, int attribute, int value) {
  ENTER();
  if (!functions.count(function)) return INVALID_HANDLE;
  if (attribute != 8) return attribute == 9 ? SUCCESS : INVALID_VALUE; /* 8: the most dynamic shared memory; 9: how much of the L1 cache is shared memory */
  if (value < 0 || value + int(function->kernel->static_shared) > OPTIN_SHARED) return INVALID_VALUE;
  function->most_dynamic = value;
  return SUCCESS;
}
API cuFuncSetBlockShape(Function* function, int x, int y, int z) { /* which pycuda calls before each launch */
  ENTER();
  if (!functions.count(function)) return INVALID_HANDLE;
  return x < 1 || y < 1 || z < 1 || x > 1024 || y > 1024 || z > 64 || x * y * z > 1024 ? INVALID_VALUE : SUCCESS;
}
API cuFuncGetAttribute(int* value, int attribute, Function* function) {
  ENTER();
  if (!functions.count(function)) return INVALID_HANDLE;
  const int known[] = {1024, int(function->kernel->static_shared), 0, 0, int(function->kernel->registers), capability(), capability(), 0, function->most_dynamic};
  if (attribute < 0 || attribute > 8) return INVALID_VALUE;
  *value = known[attribute];
  return SUCCESS;
}
API cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned dynamic_shared, void* stream, void** parameters, void** extra) {
  ENTER();
  (void)stream; /* all are in order here */
  if (!functions.count(function) || function->context != context) return INVALID_HANDLE;
  if (!gx || !gy || !gz || !bx || !by || !bz) return INVALID_VALUE;
  if (gx > 0x7fffffff || gy > 65535 || gz > 65535 || bx > 1024 || by > 1024 || bz > 64 || bx * by * bz > 1024) return INVALID_VALUE;
  if (int(dynamic_shared) > function->most_dynamic) return INVALID_VALUE;
  const KernelInfo* kernel = function->kernel;
  const unsigned warps = (bx * by * bz + 31) / 32, registers = (kernel->registers * 32 + 255) / 256 * 256 * warps;
  if (registers > REGISTERS) return LAUNCH_OUT_OF_RESOURCES;
  Work work{context, kernel, function->info, {gx, gy, gz}, {bx, by, bz}, dynamic_shared, std::vector<uint64_t>(kernel->parameter_count + 1)};
  const char* packed = nullptr;
  size_t packed_bytes = 0, offset = 0;
  for (; extra && *extra; extra += 2) { /* pairs of a code and a pointer */
    if (*extra == reinterpret_cast<void*>(1)) packed = static_cast<const char*>(extra[1]);
    if (*extra == reinterpret_cast<void*>(2)) packed_bytes = *static_cast<size_t*>(extra[1]);
  }
  if (!packed && !parameters && kernel->parameter_count) return INVALID_VALUE;
  for (uint32_t n = 0; n < kernel->parameter_count; ++n) {
    const size_t size = kernel->sizes[n];
    offset = (offset + size - 1) / size * size;
    if (!packed && !parameters[n]) return INVALID_VALUE;
    memcpy(&work.values[n], packed ? packed + offset : parameters[n], size);
    offset += size;
  }
  if (packed && packed_bytes != offset) {
    say("%s takes other bytes of parameters than %llu", kernel->name, packed_bytes);
    return INVALID_VALUE;
  }
  ++launches;
  context->waiting.push_back(work);
  return SUCCESS;
}

/* ---- how cuda-bindings finds the others */

API cuGetProcAddress_v2(const char* name, void** found, int, uint64_t, int* status) {
  static void* const self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *found = nullptr;
  for (const char* suffix : {"_v2", ""})
    if (!*found) *found = dlsym(self ? self : RTLD_DEFAULT, (std::string(name) + suffix).c_str());
  if (status) *status = *found ? 0 : 1;
  return *found ? SUCCESS : NOT_FOUND;
}
API cuGetProcAddress(const char* name, void** found, int version, uint64_t flags) { return cuGetProcAddress_v2(name, found, version, flags, nullptr); }

/* NVRTC asks for what only NVIDIA's own libraries know, and does without. */
API cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return NOT_FOUND;
}

/* What pycuda is linked with and no test calls. */
#define ABSENT(name) \
  API name() { return say("%s is not there", #name), NOT_SUPPORTED; }
ABSENT(cuArray3DCreate_v2) ABSENT(cuArray3DGetDescriptor_v2) ABSENT(cuArrayCreate_v2) ABSENT(cuArrayDestroy) ABSENT(cuArrayGetDescriptor_v2)
ABSENT(cuCtxAttach) ABSENT(cuCtxCreate_v4) ABSENT(cuCtxDisablePeerAccess) ABSENT(cuCtxEnablePeerAccess) ABSENT(cuCtxGetApiVersion)
ABSENT(cuCtxGetCacheConfig) ABSENT(cuCtxGetLimit) ABSENT(cuCtxGetSharedMemConfig) ABSENT(cuCtxSetCacheConfig) ABSENT(cuCtxSetLimit)
ABSENT(cuCtxSetSharedMemConfig) ABSENT(cuDeviceCanAccessPeer) ABSENT(cuDeviceGetByPCIBusId) ABSENT(cuDeviceGetPCIBusId)
ABSENT(cuFuncSetCacheConfig) ABSENT(cuFuncSetSharedSize) ABSENT(cuIpcCloseMemHandle) ABSENT(cuIpcGetEventHandle) ABSENT(cuIpcGetMemHandle)
ABSENT(cuIpcOpenEventHandle) ABSENT(cuIpcOpenMemHandle_v2) ABSENT(cuLaunch) ABSENT(cuLaunchGrid) ABSENT(cuLaunchGridAsync) ABSENT(cuLinkAddData_v2)
ABSENT(cuLinkAddFile_v2) ABSENT(cuLinkComplete) ABSENT(cuLinkCreate_v2) ABSENT(cuLinkDestroy) ABSENT(cuMemAllocManaged) ABSENT(cuMemAllocPitch_v2)
ABSENT(cuMemFreeHost) ABSENT(cuMemGetAddressRange_v2) ABSENT(cuMemHostAlloc) ABSENT(cuMemHostGetDevicePointer_v2) ABSENT(cuMemHostGetFlags)
ABSENT(cuMemHostRegister_v2) ABSENT(cuMemHostUnregister) ABSENT(cuMemcpy2DAsync_v2) ABSENT(cuMemcpy2DUnaligned_v2) ABSENT(cuMemcpy2D_v2)
ABSENT(cuMemcpy3DAsync_v2) ABSENT(cuMemcpy3DPeer) ABSENT(cuMemcpy3DPeerAsync) ABSENT(cuMemcpy3D_v2) ABSENT(cuMemcpyAtoA_v2) ABSENT(cuMemcpyAtoD_v2)
ABSENT(cuMemcpyAtoH_v2) ABSENT(cuMemcpyDtoA_v2) ABSENT(cuMemcpyDtoDAsync_v2) ABSENT(cuMemcpyDtoD_v2) ABSENT(cuMemcpyDtoHAsync_v2) ABSENT(cuMemcpyHtoA_v2)
ABSENT(cuMemcpyHtoDAsync_v2) ABSENT(cuMemcpyPeer) ABSENT(cuMemcpyPeerAsync) ABSENT(cuMemsetD16Async) ABSENT(cuMemsetD16_v2) ABSENT(cuMemsetD2D16Async)
ABSENT(cuMemsetD2D16_v2) ABSENT(cuMemsetD2D32Async) ABSENT(cuMemsetD2D32_v2) ABSENT(cuMemsetD2D8Async) ABSENT(cuMemsetD2D8_v2) ABSENT(cuMemsetD32Async)
ABSENT(cuMemsetD32_v2) ABSENT(cuMemsetD8Async) ABSENT(cuModuleGetSurfRef) ABSENT(cuModuleGetTexRef) ABSENT(cuModuleLoad) ABSENT(cuParamSetSize)
ABSENT(cuParamSetTexRef) ABSENT(cuParamSetf) ABSENT(cuParamSeti) ABSENT(cuParamSetv) ABSENT(cuProfilerInitialize) ABSENT(cuProfilerStart)
ABSENT(cuProfilerStop) ABSENT(cuStreamAttachMemAsync) ABSENT(cuStreamCreate) ABSENT(cuStreamDestroy_v2) ABSENT(cuStreamQuery) ABSENT(cuStreamSynchronize)
ABSENT(cuStreamWaitEvent) ABSENT(cuSurfRefGetArray) ABSENT(cuSurfRefSetArray) ABSENT(cuTexRefCreate) ABSENT(cuTexRefDestroy)
ABSENT(cuTexRefGetAddressMode) ABSENT(cuTexRefGetAddress_v2) ABSENT(cuTexRefGetArray) ABSENT(cuTexRefGetFilterMode) ABSENT(cuTexRefGetFlags)
ABSENT(cuTexRefGetFormat) ABSENT(cuTexRefSetAddress2D_v3) ABSENT(cuTexRefSetAddressMode) ABSENT(cuTexRefSetAddress_v2) ABSENT(cuTexRefSetArray)
ABSENT(cuTexRefSetFilterMode) ABSENT(cuTexRefSetFlags) ABSENT(cuTexRefSetFormat)

/* Memory of a device by the vendor's own driver, which is loaded at run time: to build this, nothing of a vendor is needed. A trainer
   has its own allocator and its own streams in place of this. */
#ifndef DRIVER_H
#define DRIVER_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `CUdeviceptr` is as wide as a pointer. */
struct driver {
    void *library; /* null: the host's own memory */
    int is_cuda;
    void *stream;
    int (*allocate)(void **, size_t);
    int (*release)(void *);
    int (*to_device)(void *, const void *, size_t, void *);
    int (*to_host)(void *, const void *, size_t, void *);
    int (*copy)(void *, const void *, size_t, int, void *);
    int (*synchronize)(void *);
};

static void driver_need(int code, const char *what) {
    if (code == 0) return;
    fprintf(stderr, "%s: code %d of the driver\n", what, code);
    exit(1);
}

/* A function of the driver; C has no cast for it. */
static void driver_find(const struct driver *driver, void *function, const char *name) {
    void *address = dlsym(driver->library, name);
    if (address == NULL) driver_need(-1, name);
    memcpy(function, &address, sizeof address);
}

/* For "cpu", "cuda:0", "rocm:0"; device 0 of the vendor's. */
static struct driver driver_open(const char *device) {
    struct driver driver = {0};
    if (strncmp(device, "cpu", 3) == 0) return driver;
    driver.is_cuda = strncmp(device, "cuda", 4) == 0;
    driver.library = dlopen(driver.is_cuda ? "libcuda.so.1" : "libamdhip64.so", RTLD_NOW);
    if (driver.library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    if (driver.is_cuda) {
        int (*init)(unsigned), (*retain)(void **, int), (*push)(void *), (*stream)(void **, unsigned);
        void *context;
        driver_find(&driver, &init, "cuInit");
        driver_find(&driver, &retain, "cuDevicePrimaryCtxRetain");
        driver_find(&driver, &push, "cuCtxPushCurrent_v2");
        driver_find(&driver, &stream, "cuStreamCreate");
        driver_find(&driver, &driver.allocate, "cuMemAlloc_v2");
        driver_find(&driver, &driver.release, "cuMemFree_v2");
        driver_find(&driver, &driver.to_device, "cuMemcpyHtoDAsync_v2");
        driver_find(&driver, &driver.to_host, "cuMemcpyDtoHAsync_v2");
        driver_find(&driver, &driver.synchronize, "cuStreamSynchronize");
        driver_need(init(0), "cuInit");
        driver_need(retain(&context, 0), "cuDevicePrimaryCtxRetain");
        driver_need(push(context), "cuCtxPushCurrent");
        driver_need(stream(&driver.stream, 1), "cuStreamCreate");
    } else {
        int (*stream)(void **, unsigned);
        driver_find(&driver, &stream, "hipStreamCreateWithFlags");
        driver_find(&driver, &driver.allocate, "hipMalloc");
        driver_find(&driver, &driver.release, "hipFree");
        driver_find(&driver, &driver.copy, "hipMemcpyAsync");
        driver_find(&driver, &driver.synchronize, "hipStreamSynchronize");
        driver_need(stream(&driver.stream, 1), "hipStreamCreateWithFlags");
    }
    return driver;
}

/* Bytes of the device, with these values; zeroed where `from` is null. */
static void *driver_upload(const struct driver *driver, const void *from, size_t bytes) {
    void *to = NULL, *zeros = from == NULL ? calloc(bytes + 1, 1) : NULL;
    const void *values = from == NULL ? zeros : from;
    if (driver->library == NULL) {
        to = aligned_alloc(256, (bytes / 256 + 1) * 256);
        memcpy(to, values, bytes);
    } else {
        driver_need(driver->allocate(&to, bytes + 1), "allocate");
        if (bytes > 0)
            driver_need(driver->is_cuda ? driver->to_device(to, values, bytes, driver->stream)
                                        : driver->copy(to, values, bytes, 1, driver->stream), "upload");
        driver_need(driver->synchronize(driver->stream), "synchronize");
    }
    free(zeros);
    return to;
}

static void driver_download(const struct driver *driver, void *to, const void *from, size_t bytes) {
    if (bytes == 0) return;
    if (driver->library == NULL) {
        memcpy(to, from, bytes);
        return;
    }
    driver_need(driver->is_cuda ? driver->to_host(to, from, bytes, driver->stream)
                                : driver->copy(to, from, bytes, 2, driver->stream), "download");
    driver_need(driver->synchronize(driver->stream), "synchronize");
}

static void driver_free(const struct driver *driver, void *memory) {
    if (driver->library == NULL)
        free(memory);
    else
        driver_need(driver->release(memory), "free");
}

#endif

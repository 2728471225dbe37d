/* Symbols the Apple SDK provides and Linux lacks. mlx-rs takes random seeds from mach_approximate_time. */
#define _GNU_SOURCE
#include <stdint.h>
#include <time.h>

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t mach_approximate_time(void) { return nanoseconds(CLOCK_MONOTONIC); }
uint64_t mach_absolute_time(void) { return nanoseconds(CLOCK_MONOTONIC); }

/* SPDX-License-Identifier: Apache-2.0
 *
 * Processor time of the whole machine, as the kernel counts it: that of all programs and of the kernel itself, which
 * moves a link's bytes in interrupts, too, in nobody's time. Not here: a thread's own time (common/base/clock.h).
 *
 * Threads: any. Test: tests/unit/test_link_figures.c
 */
#ifndef GP_MACHINE_TIME_H
#define GP_MACHINE_TIME_H

#define GP_MACHINE_TIME_FILE "/proc/stat"

/* Seconds since it was started that the machine's processors have been busy, summed over all of them and counted in
 * clock ticks of 10 ms; neither waiting for a disk nor what a hypervisor took away is among them. `file`: of the form of
 * /proc/stat (man 5 proc). NaN: it cannot be read, or is of another form. */
double gp_machine_busy_s(const char *file);

#endif

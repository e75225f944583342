/* SPDX-License-Identifier: Apache-2.0
 *
 * See machine_time.h. Test: tests/unit/test_link_figures.c
 */
#include "client/measure/machine_time.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

/* The first line: "cpu  user nice system idle iowait irq softirq ...", in clock ticks. */
double gp_machine_busy_s(const char *file)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq;
	FILE *f = fopen(file, "r");
	const bool read = f && fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
				      &iowait, &irq, &softirq) == 7;
	const long per_second = sysconf(_SC_CLK_TCK);
	if (f)
		fclose(f);
	return read && per_second > 0 ? (double)(user + nice + system + irq + softirq) / (double)per_second : NAN;
}

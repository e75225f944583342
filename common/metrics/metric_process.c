/* SPDX-License-Identifier: Apache-2.0
 *
 * See metric_process.h. Test: tests/e2e/metrics.sh
 */
#include "common/metrics/metric_process.h"

#include <sys/resource.h>
#include <unistd.h>

#include "common/metrics/metric_row.h"

static uint64_t resident_bytes(void)
{
	unsigned long long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");
	if (!f)
		return 0;
	if (fscanf(f, "%*u %llu", &pages) != 1)
		pages = 0;
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

void gp_metric_process(struct gp_metric_text *t, int64_t started_ms)
{
	struct rusage used;
	gp_metric_family(t, "process_start_time_seconds", GP_METRIC_GAUGE, "When the process started, since 1970");
	gp_metric_seconds(t, NULL, 0, (uint64_t)started_ms * 1000000);
	gp_metric_one(t, "process_resident_memory_bytes", GP_METRIC_GAUGE, "Memory that the process has in use",
		      resident_bytes());
	if (getrusage(RUSAGE_SELF, &used) != 0)
		return;
	gp_metric_family(t, "process_cpu_seconds_total", GP_METRIC_COUNTER, "Processor time of all threads");
	gp_metric_sample(t, NULL, 0, seconds_of(used.ru_utime) + seconds_of(used.ru_stime));
}

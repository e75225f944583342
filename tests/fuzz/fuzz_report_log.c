/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any file is a log that gives a page which is well-formed, or one line
 * of error and nothing left allocated (client/report/report_read.h, client/report/report_page.h).
 * Input: the log.
 */
#include "tests/fuzz/memory_file.h"

#include "client/report/report_page.h"
#include "client/report/report_read.h"
#include "tests/well_formed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_page(struct gp_report_run *run)
{
	struct gp_html h = {0};
	struct gp_err err = {0};
	size_t where;
	gp_require(gp_report_page(&h, run, 1, &err) == GP_OK);
	gp_require(!page_fault(h.text, h.length, &where));
	gp_html_deinit(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_report_run run;
	struct gp_err err = {0};
	char path[32];
	const int fd = memory_file(data, size, path);
	if (gp_report_run_init(&run, "<run & \"log\">", &err) != GP_OK)
		abort();
	if (gp_report_read(path, &run, &err) == GP_OK)
		check_page(&run);
	else
		gp_require(err.code == GP_INVALID && err.text[0]);
	gp_report_run_deinit(&run);
	close(fd);
	return 0;
}

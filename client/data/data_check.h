/* SPDX-License-Identifier: Apache-2.0
 *
 * Which samples of a dataset cannot be read, found before they are needed, and
 * leaving them out. Pictures that lie in files of their own are looked at, by
 * several threads; what lies in a few large files was read as a whole when the
 * dataset was opened (and gp_data_check_files tells of each of those files).
 *
 * Threads: any, one at a time for a dataset; `progress` is called on the
 * caller's. Test: tests/unit/test_data_check.c
 */
#ifndef GP_DATA_CHECK_H
#define GP_DATA_CHECK_H

#include "client/data/dataset.h"

enum gp_check_depth {
	GP_CHECK_HEADERS, /* beginning and end of each file; a picture that looks odd there is decoded */
	GP_CHECK_ALL,     /* every picture is decoded */
};

struct gp_check_options {
	enum gp_check_depth depth;
	int threads;
	void (*progress)(void *arg, uint32_t done, uint32_t of); /* (optional) a few times a second, and at the end */
	void *arg;
};

struct gp_bad_sample {
	uint32_t sample;
	char *file; /* "": it has none of its own */
	char *text; /* what is wrong: one line, which names the file */
};

struct gp_bad_samples {
	uint32_t checked, count;
	uint32_t unlisted;          /* bad lines of a file beyond those that are listed */
	struct gp_bad_sample *list; /* by number of the sample, whatever the threads */
};

/* Success, too, when there are bad ones. `out` is zeroed or of an earlier call, which it then continues. */
enum gp_status gp_data_check(const struct gp_dataset *d, const struct gp_check_options *options,
			     struct gp_bad_samples *out, struct gp_err *err);
/* Whether samples lie each in a file of its own, which may be bad by itself: else gp_data_check has nothing to look at. */
bool gp_dataset_has_files(const struct gp_dataset *d);
/* Appends one; copies the texts. */
enum gp_status gp_bad_samples_add(struct gp_bad_samples *b, uint32_t sample, const char *file, const char *text,
				  struct gp_err *err);
void gp_bad_samples_deinit(struct gp_bad_samples *b);

/*
 * For the few large files of a split, of a text as for gp_dataset_open: reads each by itself. What is wrong is listed
 * with the number of the file in place of a sample's. Of data whose samples are lines of a file, the bad lines are listed.
 * Success with nothing checked for data of other kinds.
 */
enum gp_status gp_data_check_files(const char *spec, enum gp_split split, struct gp_bad_samples *out,
				   struct gp_err *err);

/* Takes these samples, of one gp_data_check of `d`, out: the others are numbered anew, in their order. Before a loader is
 * made. GP_INVALID: none would be left. */
enum gp_status gp_dataset_leave_out(struct gp_dataset *d, const struct gp_bad_samples *bad, struct gp_err *err);

/* What is suspicious about samples that can all be read. */
enum gp_data_doubt {
	GP_DOUBT_ONE_CLASS = 1,  /* all samples have the same label */
	GP_DOUBT_STATISTICS = 2, /* mean= or std= above 1, though pictures are between 0 and 1 */
};
unsigned gp_dataset_doubts(const struct gp_dataset *d);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole text files in memory, and their paths.
 *
 * Threads: any. Test: tests/unit/test_tokenizer.c
 */
#ifndef GP_TEXT_FILE_H
#define GP_TEXT_FILE_H

#include "common/base/status.h"
#include "common/base/text.h"

#define GP_TEXT_PATH 1024

/* A file of at most `most` bytes, with a NUL behind it; free by gp_free. GP_INVALID says what is wrong with which file. */
enum gp_status gp_text_file_read(const char *path, size_t most, char **out, size_t *bytes, struct gp_err *err);
/* Takes a byte order mark off the text of a file. GP_INVALID: it is UTF-16, or holds a byte of value 0, so that it is no text.
 */
enum gp_status gp_text_check(const char *path, struct gp_text *text, struct gp_err *err);
bool gp_text_file_there(const char *path);
/* "FOLDER/FILE" */
enum gp_status gp_text_path(const char *folder, const char *file, char out[GP_TEXT_PATH], struct gp_err *err);
/* Cuts the next line off `rest`, without its end ("\n" or "\r\n"). False when there is none; an end of the last line begins
 * no further one. */
bool gp_text_line(struct gp_text *rest, struct gp_text *line);

#endif

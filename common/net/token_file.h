/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens: what a client proves with, in HELLO, that it may use a server. The
 * server's file has lines "NAME TOKEN" with '#' comments; a NAME may have
 * several. A client's file holds its TOKEN, or such a line. Names are logged,
 * tokens never; kept are their SHA-256 sums alone, and a candidate is compared
 * with all of them in constant time.
 *
 * Threads: any one at a time. Test: tests/unit/test_token_file.c; fuzz: fuzz_token_file.c
 */
#ifndef GP_TOKEN_FILE_H
#define GP_TOKEN_FILE_H

#include "common/base/mem.h"

#define GP_CLIENT_TOKEN_MIN  16
#define GP_CLIENT_TOKEN_MAX  512
#define GP_CLIENT_NAME_BYTES 64 /* with the 0 behind it */
#define GP_CLIENT_TOKENS_MAX 100000
#define GP_TOKEN_SUM_BYTES   32 /* of SHA-256 */

struct gp_token_file;

/* GP_INVALID says which line is wrong and why, without the token. A file without tokens is wrong. */
enum gp_status gp_token_file_load(const char *path, struct gp_token_file **out, struct gp_err *err);
void gp_token_file_free(struct gp_token_file *t);
/* Writes into `name` whose token it is; false when it is nobody's. */
bool gp_token_file_find(const struct gp_token_file *t, struct gp_span token, char name[GP_CLIENT_NAME_BYTES]);
/* What can be kept of a token, to ask later whether it is still good. */
void gp_token_file_sum(struct gp_span token, uint8_t sum[GP_TOKEN_SUM_BYTES]);
/* Whether the file has the token of this sum as one of `name`. */
bool gp_token_file_holds(const struct gp_token_file *t, const uint8_t sum[GP_TOKEN_SUM_BYTES], const char *name);
/* Calls `each` once for every name, in the order of strcmp. GP_NOMEM: for none. */
enum gp_status gp_token_file_each_name(const struct gp_token_file *t, void (*each)(void *arg, const char *name),
				       void *arg, struct gp_err *err);

/* Reads a client's token file: the token is the first line that is no comment. GP_INVALID, too, for a file of several lines
 * NAME TOKEN, which is a server's. */
enum gp_status gp_token_file_own(const char *path, char token[GP_CLIENT_TOKEN_MAX + 1], struct gp_err *err);

#endif

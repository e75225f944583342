/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors. A fallible function returns `enum gp_status` and takes a trailing
 * `struct gp_err *err` (never NULL). Whoever detects the error fills `err`
 * with GP_FAIL; everybody above only forwards it with GP_TRY; whoever gives up
 * prints it once (`gp_err_print`). Outputs stay untouched on failure. There is
 * no global or thread-local last error.
 *
 * Threads: any; an error belongs to whoever passed it. Test: tests/unit/test_status.c
 */
#ifndef GP_STATUS_H
#define GP_STATUS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Pinned: the values travel in Error messages (PROTOCOL.md section 5.5). */
enum gp_status {
	GP_OK = 0,
	GP_USAGE = 1,        /* the command line is wrong: exit 2 */
	GP_INVALID = 2,      /* a file, dataset, spec or configuration is wrong: exit 3 */
	GP_PEER = 3,         /* the peer or the connection failed: exit 4 */
	GP_PROTO = 4,        /* the peer broke the protocol: exit 4 */
	GP_TIMEOUT = 5,      /* a deadline passed: exit 4 */
	GP_BUSY = 6,         /* the peer has no room for us now: exit 4 */
	GP_DEVICE = 7,       /* no such device, or it failed: exit 5 */
	GP_NOMEM = 8,        /* out of memory or over a quota: exit 1 */
	GP_IO = 9,           /* the operating system refused: exit 1 */
	GP_CANCELED = 10,    /* stopped by us (signal, shutdown): exit 1 */
	GP_UNSUPPORTED = 11, /* valid, but this build or device cannot do it: exit 3 */
	GP_INTERNAL = 12,    /* our own bug: exit 1 */
	GP_DENIED = 13,      /* a certificate or token is missing or refused; trying again does not help: exit 4 */
	GP_DAMAGED = 14,     /* bytes came over a link that are not those that were sent: exit 4 */
};

#define GP_ERR_TEXT 320

struct gp_err {
	enum gp_status code;
	int os_code; /* errno or a library's code, 0 if none */
	const char *file;
	int line;
	char text[GP_ERR_TEXT]; /* one line: what, where, what to do */
};

enum gp_status gp_err_set(struct gp_err *err, enum gp_status code, int os_code, const char *file, int line,
			  const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* Replaces what would move a terminal's cursor or turn the direction of a line by '?', one for each byte; tabs and ends of lines
 * stay. Texts of errors and of the log hold none: names in files and texts of peers are in them. */
void gp_hide_control_characters(char *text);
/* Puts "prefix: " before the text already there: adds the place ("where") on the way up. Returns err->code. */
enum gp_status gp_err_prefix(struct gp_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints "program: text" as one line on stderr. */
void gp_err_print(const struct gp_err *err, const char *program);
/* Exit status of the programs: 0 success, 2 usage, 3 input, 4 peer or link, 5 device, 1 anything else. */
int gp_status_exit(enum gp_status code);
/* A short stable name ("invalid", "peer", ...). Never NULL. */
const char *gp_status_name(enum gp_status code);

/* Fails the current function with `code` and a printf-style text. Names the code twice for the compiler's sake, which
 * otherwise thinks that a failure might return GP_OK. */
#define GP_FAIL(err, code, ...) return gp_err_set((err), (code), 0, __FILE__, __LINE__, __VA_ARGS__), (code)
/* Forwards a failure. */
#define GP_TRY(expr)                                                                                                   \
	do {                                                                                                           \
		enum gp_status gp_try_ = (expr);                                                                       \
		if (gp_try_ != GP_OK)                                                                                  \
			return gp_try_;                                                                                \
	} while (0)

/* For our own bugs only, in every build type: prints the place and aborts.
 * Never on bytes from a peer, a file or a configuration. */
#define gp_require(cond)                                                                                               \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			gp_require_failed(#cond, __FILE__, __LINE__);                                                  \
	} while (0)
void gp_require_failed(const char *cond, const char *file, int line) __attribute__((noreturn));

#endif

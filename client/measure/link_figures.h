/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gpclient link HOST:PORT` has found out about a link, as numbers, text and
 * JSON. How it finds them: link_measure.h. A number that was not measured is NaN.
 *
 * Threads: any. Test: tests/unit/test_link_figures.c, tests/e2e/measure.sh
 */
#ifndef GP_LINK_FIGURES_H
#define GP_LINK_FIGURES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define GP_TRIPS_MAX 1024
#define GP_SIZES_MAX 8

enum { GP_WAY_UP, GP_WAY_DOWN, GP_WAYS };

/* Round trips in their order, in seconds. */
struct gp_trips {
	int count;
	double s[GP_TRIPS_MAX];
};

/* jitter: the mean of how much one differs from the one before. */
struct gp_trip_figures {
	int count;
	double least, median, most, jitter;
};

struct gp_way_figures {
	double bytes_per_s;                  /* of payload, without the way there and back */
	uint64_t bytes, retransmitted_bytes; /* by the sender's kernel, of the whole measurement */
	bool kernel;                         /* these two are known */
	double byte_s;         /* processor time that a byte of payload takes the thread here, kernel included; 0: not measured */
	double machine_byte_s; /* the same of this whole machine, interrupts and other programs included; 0: not known */
	double seconds;        /* that the rate was measured for */
	struct gp_trip_figures loaded; /* round trips while the way is full */
};

struct gp_size_figures {
	uint64_t bytes;
	double bytes_per_s[GP_WAYS]; /* of one such frame alone, its round trip included */
};

struct gp_link_figures {
	const char *server; /* HOST:PORT */
	char agent[64];     /* what the server says it is */
	bool tls;
	double seconds; /* of all */
	struct gp_trip_figures idle;
	uint32_t kernel_rtt_us, kernel_rtt_min_us; /* of this side's TCP; 0: not known */
	struct gp_way_figures way[GP_WAYS];
	struct gp_size_figures size[GP_SIZES_MAX];
	int sizes;
	uint64_t send_buffer_bytes, receive_buffer_bytes; /* how far this machine lets them grow; 0: not known */
	bool cut_short;                                   /* the server ended it before all was measured */
};

/* NaN where there are too few: no round trip, or for jitter only one. */
struct gp_trip_figures gp_trips_figures(const struct gp_trips *t);
/* A table for people. */
void gp_link_figures_print(const struct gp_link_figures *f, FILE *to);
/* The object of client/JSON.md, `link HOST:PORT`, which the caller owns. */
json_t *gp_link_figures_json(const struct gp_link_figures *f);

#endif

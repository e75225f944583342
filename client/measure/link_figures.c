/* SPDX-License-Identifier: Apache-2.0
 *
 * See link_figures.h. Test: tests/unit/test_link_figures.c
 */
#include "client/measure/link_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/log/figures.h"

#define NUMBER_TEXT 32

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

struct gp_trip_figures gp_trips_figures(const struct gp_trips *t)
{
	double sorted[GP_TRIPS_MAX], change = 0;
	if (t->count == 0)
		return (struct gp_trip_figures){0, NAN, NAN, NAN, NAN};
	memcpy(sorted, t->s, (size_t)t->count * sizeof *sorted);
	qsort(sorted, (size_t)t->count, sizeof *sorted, by_size);
	for (int i = 1; i < t->count; i++)
		change += fabs(t->s[i] - t->s[i - 1]);
	return (struct gp_trip_figures){.count = t->count,
					.least = sorted[0],
					.median = sorted[t->count / 2],
					.most = sorted[t->count - 1],
					.jitter = t->count > 1 ? change / (t->count - 1) : NAN};
}

/* "98.7 Mbit/s", or "-": not measured. */
static const char *rate_text(double bytes_per_s, char text[NUMBER_TEXT])
{
	if (!isfinite(bytes_per_s))
		return "-";
	snprintf(text, NUMBER_TEXT, "%.*f Mbit/s", bytes_per_s * 8e-6 < 10 ? 2 : 1, bytes_per_s * 8e-6);
	return text;
}

static const char *size_text(uint64_t bytes, char text[NUMBER_TEXT])
{
	if (bytes < 1 << 20)
		snprintf(text, NUMBER_TEXT, "%llu KiB", (unsigned long long)bytes >> 10);
	else
		snprintf(text, NUMBER_TEXT, "%llu MiB", (unsigned long long)bytes >> 20);
	return text;
}

/* One trip has no jitter. */
static void print_trips(const char *when, const struct gp_trip_figures *t, FILE *to)
{
	if (t->count == 0) {
		fprintf(to, "  %-22s not measured\n", when);
		return;
	}
	fprintf(to, "  %-22s %8.2f ms (%.2f to %.2f), ", when, t->median * 1e3, t->least * 1e3, t->most * 1e3);
	if (isfinite(t->jitter))
		fprintf(to, "jitter %.2f ms, ", t->jitter * 1e3);
	fprintf(to, "%d measured\n", t->count);
}

static double lost(const struct gp_way_figures *w)
{
	return w->kernel && w->bytes > 0 ? (double)w->retransmitted_bytes / (double)w->bytes : NAN;
}

static void print_way(const char *name, const struct gp_way_figures *w, FILE *to)
{
	char rate[NUMBER_TEXT];
	fprintf(to, "  %-22s %14s", name, rate_text(w->bytes_per_s, rate));
	if (w->kernel)
		fprintf(to, ", sent again %.3g %% of %.1f MB", 100 * (w->bytes ? lost(w) : 0), (double)w->bytes * 1e-6);
	fprintf(to, "\n");
}

/* What is under way on a full link, at most; the kernel's buffers hold some more than that for themselves. */
static void print_buffers(const struct gp_link_figures *f, FILE *to)
{
	const double most = fmax(f->way[GP_WAY_UP].bytes_per_s, f->way[GP_WAY_DOWN].bytes_per_s);
	const double product = most * f->idle.least;
	if (!isfinite(product) || f->send_buffer_bytes == 0)
		return;
	fprintf(to,
		"rate times round trip is %.2f MB; this machine's buffers may grow to %.1f MB (sending) and %.1f MB\n",
		product * 1e-6, (double)f->send_buffer_bytes * 1e-6, (double)f->receive_buffer_bytes * 1e-6);
	if (2 * product > (double)f->send_buffer_bytes || 2 * product > (double)f->receive_buffer_bytes)
		fprintf(to, "that may be too little: raise net.ipv4.tcp_wmem and net.ipv4.tcp_rmem at both ends "
			    "(sysctl)\n");
}

void gp_link_figures_print(const struct gp_link_figures *f, FILE *to)
{
	char size[NUMBER_TEXT], up[NUMBER_TEXT], down[NUMBER_TEXT];
	fprintf(to, "link to %s (%s%s), measured in %.1f s\n", f->server, f->agent, f->tls ? ", TLS" : "", f->seconds);
	fprintf(to, "round trips\n");
	print_trips("idle", &f->idle, to);
	print_trips("while up is full", &f->way[GP_WAY_UP].loaded, to);
	print_trips("while down is full", &f->way[GP_WAY_DOWN].loaded, to);
	fprintf(to, "rate\n");
	print_way("up", &f->way[GP_WAY_UP], to);
	print_way("down", &f->way[GP_WAY_DOWN], to);
	fprintf(to, "one frame alone, its round trip included\n");
	for (int i = 0; i < f->sizes; i++)
		fprintf(to, "  %-10s up %15s   down %15s\n", size_text(f->size[i].bytes, size),
			rate_text(f->size[i].bytes_per_s[GP_WAY_UP], up),
			rate_text(f->size[i].bytes_per_s[GP_WAY_DOWN], down));
	print_buffers(f, to);
	if (f->cut_short)
		fprintf(to, "the server ended the measurement before all of it was done\n");
}

static json_t *trips_json(const struct gp_trip_figures *t)
{
	return json_pack("{s:i, s:o, s:o, s:o, s:o}", "count", t->count, "min_s", gp_json_number(t->least), "median_s",
			 gp_json_number(t->median), "max_s", gp_json_number(t->most), "jitter_s",
			 gp_json_number(t->jitter));
}

/* What a server says of bytes may be any number. */
static json_t *known(bool is, uint64_t n)
{
	return is && n <= INT64_MAX ? json_integer((json_int_t)n) : json_null();
}

static json_t *positive(double x)
{
	return x > 0 ? gp_json_number(x) : json_null();
}

static json_t *way_json(const struct gp_way_figures *w)
{
	return json_pack("{s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "bytes_per_s", gp_json_number(w->bytes_per_s),
			 "seconds", w->seconds, "byte_s", positive(w->byte_s), "machine_byte_s",
			 positive(w->machine_byte_s), "tcp_bytes", known(w->kernel, w->bytes),
			 "tcp_retransmitted_bytes", known(w->kernel, w->retransmitted_bytes), "loss",
			 gp_json_number(lost(w)), "loaded", trips_json(&w->loaded));
}

json_t *gp_link_figures_json(const struct gp_link_figures *f)
{
	json_t *sizes = json_array();
	for (int i = 0; i < f->sizes; i++)
		json_array_append_new(
			sizes, json_pack("{s:I, s:o, s:o}", "bytes", (json_int_t)f->size[i].bytes, "up_bytes_per_s",
					 gp_json_number(f->size[i].bytes_per_s[GP_WAY_UP]), "down_bytes_per_s",
					 gp_json_number(f->size[i].bytes_per_s[GP_WAY_DOWN])));
	return json_pack("{s:s, s:s, s:b, s:f, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "server", f->server,
			 "agent", f->agent, "tls", f->tls, "seconds", f->seconds, "cut_short", f->cut_short, "idle",
			 trips_json(&f->idle), "up", way_json(&f->way[GP_WAY_UP]), "down",
			 way_json(&f->way[GP_WAY_DOWN]), "sizes", sizes, "tcp_rtt_us",
			 known(f->kernel_rtt_us > 0, f->kernel_rtt_us), "tcp_rtt_min_us",
			 known(f->kernel_rtt_min_us > 0, f->kernel_rtt_min_us), "send_buffer_bytes",
			 known(f->send_buffer_bytes > 0, f->send_buffer_bytes), "receive_buffer_bytes",
			 known(f->receive_buffer_bytes > 0, f->receive_buffer_bytes));
}

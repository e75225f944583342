/* SPDX-License-Identifier: Apache-2.0
 *
 * See trace_picture.h. Test: tests/unit/test_trace.c
 */
#include "client/trace/trace_picture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/wire/direction.h"

#define FLUSH_BYTES (64u << 10)
#define EVENT_BYTES 1024 /* most of one event with its arrows */
#define END_BYTES   8

/* Rows of the picture: the end, and what it is that does one thing at a time. */
enum process { CLIENT = 1, SERVER = 2 };
enum row { STEPS = 1, COMPUTE, CODEC, WIRE, COMMITS, QUEUES, ROWS };
#define WIRE_ROW(direction, tensor)  (100 + (direction)*GP_GRAPH_MAX_PORTS + (tensor))
#define CODEC_ROW(direction, tensor) (500 + (direction)*GP_GRAPH_MAX_PORTS + (tensor))

/* --- which stage is drawn where --------------------------------------------------------------------------------------- */

struct look {
	enum process process;
	enum row row;
	enum gp_direction direction; /* of WIRE and CODEC */
};

static const struct look looks[GP_AT_STAGES] = {
	[GP_AT_HEAD_FORWARD] = {CLIENT, COMPUTE, 0},
	[GP_AT_ACT_UP_ENCODE] = {CLIENT, CODEC, GP_ACT_UP},
	[GP_AT_ACT_UP_SENT] = {CLIENT, WIRE, GP_ACT_UP},
	[GP_AT_ACT_UP_RECEIVED] = {SERVER, WIRE, GP_ACT_UP},
	[GP_AT_ACT_UP_DECODE] = {SERVER, CODEC, GP_ACT_UP},
	[GP_AT_BODY_FORWARD] = {SERVER, COMPUTE, 0},
	[GP_AT_ACT_DOWN_ENCODE] = {SERVER, CODEC, GP_ACT_DOWN},
	[GP_AT_ACT_DOWN_SENT] = {SERVER, WIRE, GP_ACT_DOWN},
	[GP_AT_ACT_DOWN_RECEIVED] = {CLIENT, WIRE, GP_ACT_DOWN},
	[GP_AT_ACT_DOWN_DECODE] = {CLIENT, CODEC, GP_ACT_DOWN},
	[GP_AT_TAIL] = {CLIENT, COMPUTE, 0},
	[GP_AT_GRAD_UP_ENCODE] = {CLIENT, CODEC, GP_GRAD_UP},
	[GP_AT_GRAD_UP_SENT] = {CLIENT, WIRE, GP_GRAD_UP},
	[GP_AT_GRAD_UP_RECEIVED] = {SERVER, WIRE, GP_GRAD_UP},
	[GP_AT_GRAD_UP_DECODE] = {SERVER, CODEC, GP_GRAD_UP},
	[GP_AT_BODY_BACKWARD] = {SERVER, COMPUTE, 0},
	[GP_AT_GRAD_DOWN_ENCODE] = {SERVER, CODEC, GP_GRAD_DOWN},
	[GP_AT_GRAD_DOWN_SENT] = {SERVER, WIRE, GP_GRAD_DOWN},
	[GP_AT_GRAD_DOWN_RECEIVED] = {CLIENT, WIRE, GP_GRAD_DOWN},
	[GP_AT_GRAD_DOWN_DECODE] = {CLIENT, CODEC, GP_GRAD_DOWN},
	[GP_AT_HEAD_BACKWARD] = {CLIENT, COMPUTE, 0},
	[GP_AT_BODY_UPDATE] = {SERVER, COMPUTE, 0},
	[GP_AT_BODY_CHECKPOINT] = {SERVER, STEPS, 0},
	[GP_AT_TAIL_FORWARD] = {CLIENT, COMPUTE, 0},
	[GP_AT_LOSS] = {CLIENT, COMPUTE, 0},
	[GP_AT_TAIL_BACKWARD] = {CLIENT, COMPUTE, 0},
	[GP_AT_UPDATE] = {CLIENT, COMPUTE, 0},
	[GP_AT_COMMIT] = {CLIENT, COMMITS, 0},
	[GP_AT_SQUARES] = {CLIENT, COMMITS, 0},
	[GP_AT_STEP] = {CLIENT, STEPS, 0},
	[GP_AT_BATCH] = {CLIENT, STEPS, 0},
	[GP_AT_CHECKPOINT] = {CLIENT, STEPS, 0},
	[GP_AT_VALIDATION] = {CLIENT, STEPS, 0},
	[GP_AT_STATISTICS] = {CLIENT, STEPS, 0},
	[GP_AT_MODEL_FORWARD] = {CLIENT, COMPUTE, 0},
	[GP_AT_MODEL_LOSS] = {CLIENT, COMPUTE, 0},
	[GP_AT_MODEL_BACKWARD] = {CLIENT, COMPUTE, 0},
};

static bool of_chunk(enum gp_interval_stage stage)
{
	return stage < GP_AT_CHUNK_STAGES || (stage >= GP_AT_TAIL_FORWARD && stage <= GP_AT_TAIL_BACKWARD) ||
	       stage >= GP_AT_MODEL_FORWARD;
}

/* --- text ------------------------------------------------------------------------------------------------------------- */

static int write_all(int fd, const char *text, size_t length)
{
	while (length > 0) {
		if (gp_fault_hit(GP_FAULT_WRITE))
			return ENOSPC;
		const ssize_t n = write(fd, text, length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EIO;
		text += n;
		length -= (size_t)n;
	}
	return 0;
}

void gp_trace_picture_flush(struct gp_trace_picture *p)
{
	if (p->failed == 0 && p->length > 0) {
		p->failed = write_all(p->fd, p->text, p->length);
		if (p->failed)
			gp_log(main, GP_LOG_WARN, "cannot write trace %s: %s; no more of it follows", p->path,
			       strerror(p->failed));
	}
	p->written += p->length;
	p->length = 0;
}

static void stop_at_limit(struct gp_trace_picture *p)
{
	p->full = true;
	gp_log(main, GP_LOG_WARN,
	       "trace %s ends here, at its limit of %llu bytes (--trace-limit); the training goes on", p->path,
	       (unsigned long long)p->limit_bytes);
}

/* One event, without what separates it from the next one. */
struct line {
	char text[EVENT_BYTES];
	size_t length;
};

static void add_line(struct gp_trace_picture *p, const struct line *l)
{
	if (p->full || l->length == EVENT_BYTES)
		return;
	if (p->written + p->length + l->length + END_BYTES > p->limit_bytes) {
		stop_at_limit(p);
		return;
	}
	memcpy(p->text + p->length, p->begun ? ",\n" : "[\n", 2);
	memcpy(p->text + p->length + 2, l->text, l->length);
	p->length += l->length + 2;
	p->begun = true;
	if (p->length >= FLUSH_BYTES)
		gp_trace_picture_flush(p);
}

__attribute__((format(printf, 2, 3))) static void add(struct gp_trace_picture *p, const char *format, ...)
{
	struct line l;
	va_list args;
	va_start(args, format);
	const int n = vsnprintf(l.text, sizeof l.text, format, args);
	va_end(args);
	l.length = n >= 0 && n < EVENT_BYTES ? (size_t)n : EVENT_BYTES;
	add_line(p, &l);
}

/* There are thousands of events in a second: they are written without printf, which is slower. */

static void put_text(struct line *l, const char *text)
{
	const size_t n = strlen(text), room = EVENT_BYTES - l->length;
	memcpy(l->text + l->length, text, n < room ? n : room);
	l->length += n < room ? n : room;
}

static void begin_line(struct line *l, const char *text)
{
	l->length = 0;
	put_text(l, text);
}

/* At least `least` digits. */
static void put_digits(struct line *l, uint64_t v, unsigned base, int least)
{
	char digits[24];
	int at = sizeof digits - 1;
	digits[at] = '\0';
	for (; v > 0 || least > 0; v /= base, least--)
		digits[--at] = "0123456789abcdef"[v % base];
	put_text(l, digits + at);
}

static void put_number(struct line *l, const char *before, uint64_t v)
{
	put_text(l, before);
	put_digits(l, v, 10, 1);
}

/* Microseconds with three digits behind the point. */
static void put_us(struct line *l, const char *before, uint64_t ns)
{
	put_number(l, before, ns / 1000);
	put_text(l, ".");
	put_digits(l, ns % 1000, 10, 3);
}

/* Nanoseconds since the trace began; what came before that is not drawn. */
static uint64_t since(const struct gp_trace_picture *p, uint64_t ns)
{
	return ns > p->begin_ns ? ns - p->begin_ns : 0;
}

static bool is_here(const struct look *l)
{
	return gp_direction_info[l->direction].up == (l->process == CLIENT);
}

static void row_name(const struct look *l, unsigned tensor, bool second, char text[64])
{
	static const char *const names[ROWS] = {
		[STEPS] = "steps", [COMPUTE] = "compute", [COMMITS] = "commits", [QUEUES] = "queues"};
	const bool here = is_here(l);
	const char *what = l->row == WIRE ? here ? "sent" : "received" : here ? "encode" : "decode";
	if (l->row == WIRE || l->row == CODEC)
		snprintf(text, 64, "%s %u %s%s", gp_direction_info[l->direction].name, tensor, what,
			 second ? ", odd chunks" : "");
	else
		snprintf(text, 64, "%s", l->process == SERVER && l->row == STEPS ? "checkpoints" : names[l->row]);
}

/*
 * Gives the number of a row, and names it before its first event. Events of a row must not overlap unless one is within
 * another. The first byte of a tensor is handed to the kernel while the last ones of the tensor before it are on their way: what
 * is sent has a row for chunks of even numbers and one for the others.
 */
static unsigned row_of(struct gp_trace_picture *p, const struct look *l, unsigned tensor, uint64_t number)
{
	const bool second = l->row == WIRE && is_here(l) && number % 2 == 1;
	const unsigned base = l->row == WIRE    ? WIRE_ROW(l->direction, tensor)
			      : l->row == CODEC ? CODEC_ROW(l->direction, tensor)
						: (unsigned)l->row;
	const unsigned row = 2 * base + second;
	char name[64];
	if (p->named[l->process - 1][row])
		return row;
	p->named[l->process - 1][row] = true;
	row_name(l, tensor, second, name);
	add(p, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%u,\"args\":{\"name\":\"%s\"}}", l->process,
	    row, name);
	add(p, "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%u,\"args\":{\"sort_index\":%u}}",
	    l->process, row, row);
	return row;
}

/* Where and when, of an event that is not of a whole interval. */
static void put_place(struct line *l, uint64_t id, enum process process, unsigned row, uint64_t ns)
{
	put_text(l, "\",\"id\":\"");
	put_digits(l, id, 16, 1);
	put_number(l, "\",\"pid\":", process);
	put_number(l, ",\"tid\":", row);
	put_us(l, ",\"ts\":", ns);
}

/* What it waited before it began, as a pair of events that others may overlap. */
static void add_queued(struct gp_trace_picture *p, const struct look *look, const struct gp_interval *i)
{
	if (i->begin_ns <= i->queued_ns || !of_chunk(i->stage))
		return;
	const struct look queues = {look->process, QUEUES, 0};
	const unsigned row = row_of(p, &queues, 0, 0);
	const uint64_t id = (i->number * GP_AT_STAGES + i->stage) * GP_GRAPH_MAX_PORTS + i->tensor;
	for (int ends = 0; ends < 2; ends++) {
		struct line l;
		begin_line(&l, ends ? "{\"ph\":\"e\"" : "{\"ph\":\"b\"");
		put_text(&l, ",\"cat\":\"queued\",\"name\":\"");
		put_text(&l, gp_interval_stage_name(i->stage));
		put_text(&l, ": queued");
		put_place(&l, id, look->process, row, since(p, ends ? i->begin_ns : i->queued_ns));
		put_text(&l, "}");
		add_line(p, &l);
	}
}

/* An arrow from where a tensor was sent to where it was received; both ends lie within their intervals. */
static void add_arrow(struct gp_trace_picture *p, const struct look *look, const struct gp_interval *i, unsigned row)
{
	const struct gp_direction_info *d = &gp_direction_info[look->direction];
	const bool begins = d->up == (look->process == CLIENT);
	const uint64_t id = (i->number * GP_DIRECTIONS + look->direction) * GP_GRAPH_MAX_PORTS + i->tensor;
	const uint64_t ns = begins || i->end_ns == i->begin_ns ? i->begin_ns : i->end_ns - 1;
	struct line l;
	begin_line(&l, begins ? "{\"ph\":\"s\"" : "{\"ph\":\"f\",\"bp\":\"e\"");
	put_text(&l, ",\"cat\":\"frame\",\"name\":\"");
	put_text(&l, d->name);
	put_place(&l, id, look->process, row, since(p, ns));
	put_text(&l, "}");
	add_line(p, &l);
}

/* When a better guess of the server's clock moves its events to an earlier time, one could begin before the end of the one
 * before it in its row: then it is drawn from that end on. */
static struct gp_interval apart(struct gp_trace_picture *p, const struct look *look, unsigned row, struct gp_interval i)
{
	uint64_t *end_ns = &p->ends_ns[row];
	if (look->process == CLIENT)
		return i;
	i.begin_ns = i.begin_ns > *end_ns ? i.begin_ns : *end_ns;
	i.end_ns = i.end_ns > i.begin_ns ? i.end_ns : i.begin_ns;
	*end_ns = i.end_ns;
	return i;
}

void gp_trace_picture_interval(struct gp_trace_picture *p, const struct gp_interval *i, uint32_t chunks)
{
	const struct look *look = &looks[i->stage];
	struct line l;
	if (i->stage == GP_AT_CHUNK_DONE)
		return;
	const unsigned row = row_of(p, look, i->tensor, i->number);
	add_queued(p, look, i);
	const struct gp_interval drawn = apart(p, look, row, *i);
	begin_line(&l, of_chunk(i->stage) ? "{\"ph\":\"X\",\"cat\":\"chunk\"" : "{\"ph\":\"X\",\"cat\":\"step\"");
	put_text(&l, ",\"name\":\"");
	put_text(&l, gp_interval_stage_name(i->stage));
	put_number(&l, "\",\"pid\":", look->process);
	put_number(&l, ",\"tid\":", row);
	put_us(&l, ",\"ts\":", since(p, drawn.begin_ns));
	put_us(&l, ",\"dur\":", since(p, drawn.end_ns) - since(p, drawn.begin_ns));
	put_number(&l, ",\"args\":{\"step\":", i->number / chunks + 1);
	if (of_chunk(i->stage)) {
		put_number(&l, ",\"chunk\":", i->number % chunks);
		put_number(&l, ",\"tensor\":", i->tensor);
	}
	if (i->bytes > 0)
		put_number(&l, ",\"bytes\":", i->bytes);
	put_text(&l, "}}");
	add_line(p, &l);
	if (look->row == WIRE)
		add_arrow(p, look, &drawn, row);
}

void gp_trace_picture_clock(struct gp_trace_picture *p, const struct gp_clock_estimate *clock, uint64_t now_ns)
{
	add(p,
	    "{\"ph\":\"i\",\"s\":\"g\",\"cat\":\"clock\",\"name\":\"server_clock\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
	    "\"args\":{\"offset_us\":%.3f,\"uncertainty_us\":%.3f}}",
	    CLIENT, 2 * STEPS, (double)since(p, now_ns) * 1e-3, (double)clock->offset_ns * 1e-3,
	    (double)clock->uncertainty_ns * 1e-3);
}

static void add_process(struct gp_trace_picture *p, enum process process, const char *name)
{
	add(p, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"%s\"}}", process,
	    name);
	add(p, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":0,\"args\":{\"sort_index\":%d}}",
	    process, process);
}

void gp_trace_picture_head(struct gp_trace_picture *p, bool split)
{
	char text[64];
	struct tm tm;
	const time_t now = time(NULL);
	gmtime_r(&now, &tm);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
	add_process(p, CLIENT, "gpclient");
	if (split)
		add_process(p, SERVER, "gpserverd");
	add(p,
	    "{\"ph\":\"M\",\"name\":\"gpsplit\",\"pid\":%d,\"tid\":0,\"args\":{\"version\":\"%s\",\"begun\":\"%s\"}}",
	    CLIENT, GP_VERSION, text);
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

enum gp_status gp_trace_picture_init(struct gp_trace_picture *p, struct gp_err *err)
{
	return gp_alloc_array((void **)&p->text, FLUSH_BYTES + 2 * EVENT_BYTES, 1, err);
}

void gp_trace_picture_end(struct gp_trace_picture *p, uint64_t dropped)
{
	if (dropped > 0)
		add(p, "{\"ph\":\"M\",\"name\":\"gpsplit_dropped\",\"pid\":%d,\"tid\":0,\"args\":{\"events\":%llu}}",
		    CLIENT, (unsigned long long)dropped);
	memcpy(p->text + p->length, p->begun ? "\n]\n" : "[]\n", 3);
	p->length += 3;
	gp_trace_picture_flush(p);
}

void gp_trace_picture_deinit(struct gp_trace_picture *p)
{
	gp_free(p->text);
}

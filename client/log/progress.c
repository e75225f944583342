/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress line. See progress.h. Test: tests/unit/test_progress.c
 */
#include "client/log/progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/clock.h"

static const uint64_t terminal_every_ns = 200 * 1000 * 1000;
static const char clear_line[] = "\r\033[K";

/* For the thread that answers SIGUSR1. */
static struct {
	pthread_mutex_t lock; /* around all of it */
	const char *program;
	char text[320];
	uint64_t since_ns; /* 0: no text yet */
	bool in_place;
} newest = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool can_rewrite(FILE *to)
{
	const char *term = getenv("TERM");
	return isatty(fileno(to)) && term && strcmp(term, "dumb") != 0;
}

void gp_progress_init(struct gp_progress *p, FILE *to, double plain_every_s)
{
	*p = (struct gp_progress){.to = to};
	p->in_place = to && can_rewrite(to);
	p->every_ns = p->in_place ? terminal_every_ns : (uint64_t)(plain_every_s * 1e9);
}

bool gp_progress_due(const struct gp_progress *p, uint64_t now_ns)
{
	return p->to && (!p->shown || now_ns - p->shown_ns >= p->every_ns);
}

/* A longer text would wrap, and the next one could not be written over it. */
static int visible_length(const struct gp_progress *p, const char *text)
{
	struct winsize size;
	int len = (int)strcspn(text, "\r\n");
	if (!p->in_place)
		return len;
	int columns = ioctl(fileno(p->to), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
	return len < columns - 1 ? len : columns - 1;
}

static void show(struct gp_progress *p, const char *text)
{
	int len = visible_length(p, text);
	if (p->in_place)
		fprintf(p->to, "%s%.*s", clear_line, len, text);
	else
		fprintf(p->to, "%.*s\n", len, text);
	fflush(p->to);
	p->shown = true;
	p->open = p->in_place;
}

static void keep(const struct gp_progress *p, uint64_t now_ns, const char *text)
{
	pthread_mutex_lock(&newest.lock);
	snprintf(newest.text, sizeof newest.text, "%s", text);
	newest.since_ns = now_ns;
	newest.in_place = p->in_place;
	pthread_mutex_unlock(&newest.lock);
}

void gp_progress_update(struct gp_progress *p, uint64_t now_ns, const char *text)
{
	keep(p, now_ns, text);
	if (!gp_progress_due(p, now_ns))
		return;
	show(p, text);
	p->shown_ns = now_ns;
}

void gp_progress_clear(struct gp_progress *p)
{
	if (!p->open)
		return;
	fputs(clear_line, p->to);
	fflush(p->to);
	p->open = false;
}

void gp_progress_finish(struct gp_progress *p, const char *text)
{
	if (!p->to)
		return;
	if (text)
		show(p, text);
	if (p->open)
		fputc('\n', p->to);
	fflush(p->to);
	p->open = false;
}

/* SIGUSR1. */

static void print_newest(void)
{
	pthread_mutex_lock(&newest.lock);
	const char *clear = newest.in_place ? clear_line : "";
	if (newest.since_ns)
		fprintf(stderr, "%s%s: %s (%.1f s ago)\n", clear, newest.program, newest.text,
			(double)(gp_now_ns() - newest.since_ns) * 1e-9);
	else
		fprintf(stderr, "%s: no progress to show yet\n", newest.program);
	pthread_mutex_unlock(&newest.lock);
}

static void *answer(void *arg)
{
	const sigset_t *set = arg;
	int number;
	while (sigwait(set, &number) == 0)
		print_newest();
	return NULL;
}

void gp_progress_answer_signal(const char *program)
{
	static sigset_t set;
	pthread_t thread;
	newest.program = program;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL); /* threads that are made later inherit it */
	signal(SIGUSR1, SIG_DFL);
	if (pthread_create(&thread, NULL, answer, &set) == 0)
		pthread_detach(thread);
}

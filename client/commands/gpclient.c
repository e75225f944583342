/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient: picks the command. Every command is in its own cmd_*.c.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/log/progress.h"
#include "common/base/environment.h"
#include "common/base/threads.h"

static const struct {
	const char *name, *summary;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"train", "train a model, split over a server or locally", gp_cmd_train},
	{"pretrain", "train RoBERTa or BERT as a masked language model on plain text", gp_cmd_pretrain},
	{"eval", "accuracy and loss of weights on a dataset", gp_cmd_eval},
	{"infer", "labels and probabilities of pictures or other samples", gp_cmd_infer},
	{"data", "list the kinds of datasets; check all files of one", gp_cmd_data},
	{"model", "list models; show layers, MACs and tensor sizes at a cut; export a checkpoint", gp_cmd_model},
	{"tokens", "the tokens of texts, as a tokenizer makes them", gp_cmd_tokens},
	{"capture", "write the tensors that cross a model's cuts to a file, for 'gpclient codec'", gp_cmd_capture},
	{"insert-fit", "train the layers of --insert alone, to reconstruct what crosses the cuts", gp_cmd_insert_fit},
	{"attack", "train a decoder that rebuilds the pictures from what crosses a cut", gp_cmd_attack},
	{"codec", "list codecs; try one on a tensor of a file", gp_cmd_codec},
	{"plan", "predict the time of a batch; rank cuts, codecs and numbers of chunks", gp_cmd_plan},
	{"bench", "measure codecs, cuts, chunks and links in turn on a server: a table", gp_cmd_bench},
	{"link", "measure the link to a server, or simulate one: rate, delay, faults", gp_cmd_link},
	{"report", "a page about runs, from their logs (--log-json)", gp_cmd_report},
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static void print_help(FILE *to)
{
	fprintf(to,
		"usage: gpclient COMMAND [OPTION...]\n\nSplit learning: the first and last layers of a model run here,"
		" the rest on gpserverd.\n\nCommands:\n");
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fprintf(to, "\n'gpclient COMMAND --help' tells the options of a command; 'gpclient --version' the version.\n");
}

static int run(int argc, char **argv)
{
	const char *names[COMMANDS];
	if (argc < 2) {
		print_help(stderr);
		return 2;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		print_help(stdout);
		return 0;
	}
	if (strcmp(argv[1], GP_OPTIONS_ROWS) == 0) {
		for (size_t i = 0; i < COMMANDS; i++)
			gp_options_print_command("gpclient", commands[i].name, commands[i].summary, stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("gpclient " GP_VERSION "\n");
		return 0;
	}
	for (size_t i = 0; i < COMMANDS; i++) {
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 2, argv + 2);
		names[i] = commands[i].name;
	}
	return gp_cmd_unknown("gpclient", argv[1], names, COMMANDS);
}

/* Who has closed the pipe, as `head` does, wants to hear no more. */
static bool reader_has_gone(void)
{
	struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
	return poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
}

int main(int argc, char **argv)
{
	signal(SIGUSR1, SIG_IGN); /* until there is progress to be told */
	gp_threads_prepare(argv);
	gp_progress_answer_signal("gpclient");
	gp_environment_check("gpclient");
	signal(SIGPIPE, SIG_IGN);
	int status = run(argc, argv);
	/* A list that a full disk cut short is no success. */
	errno = 0;
	if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0) {
		if (reader_has_gone())
			return 1;
		fprintf(stderr, "gpclient: cannot write to standard output: %s\n", strerror(errno ? errno : EIO));
		return 1;
	}
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient pretrain: masked language modelling on plain text. cmd_train.c does the
 * work; here are only the options that are left out or have other defaults.
 * Test: tests/e2e/pretrain.sh
 */
#include "client/commands/commands.h"
#include "client/commands/train_command.h"

/* Options for pictures and for batch norm. */
static const char *const left_out[] = {"augment", "batch-norm", "recalibrate", "input", "skip-bad", NULL};

/* As RoBERTa was trained, with a learning rate for small models. */
static const struct gp_train_default initial[] = {
	{.name = "optimizer", .initial = "adamw"},
	{.name = "lr", .initial = "5e-4"},
	{.name = "adam-betas", .initial = "0.9,0.98"},
	{.name = "adam-eps", .initial = "1e-6"},
	{.name = "weight-decay", .initial = "0.01"},
	{.name = "no-decay",
	 .initial = "*.bias,*orm.weight",
	 .help = "no --weight-decay for these parameters (names with wildcards); the default: biases and layer norms"},
	{.name = "schedule", .initial = "linear"},
	{.name = "warmup", .initial = "0.06"},
	{.name = "eval",
	 .initial = "true",
	 .help = "after each epoch, loss, accuracy and perplexity on the validation texts, whose masks are always the "
		 "same (--no-eval: off)"},
	{0},
};

static const struct gp_train_command command = {
	.about =
		{.command = "gpclient pretrain",
		 .synopsis =
			 "(--server HOST:PORT | --local) (--model NAME | --init FILE) --data text:FILE --tokenizer DIR "
			 "[OPTION...]",
		 .about = "Trains RoBERTa or BERT as a masked language model on plain text, a sentence on each\n"
			  "line: 15 % of the tokens of each sentence are masked, others in every epoch, and the\n"
			  "model learns to predict them. The output layer and the word embedding share their\n"
			  "weights, which stay here. To fine-tune the result as a classifier, give the file of\n"
			  "--save to 'gpclient train --init'.",
		 .examples =
			 "  gpclient pretrain --local --model roberta:layers=4,dim=256,heads=4,ffn=1024 \\\n"
			 "      --data text:books.txt,max=64,bucket=50 --tokenizer roberta --save books.safetensors\n"
			 "  gpclient train --local --model roberta:layers=4,dim=256,heads=4,ffn=1024 \\\n"
			 "      --init books.safetensors --data glue-sst2:glue,max=64 --tokenizer roberta \\\n"
			 "      --optimizer adamw --lr 1e-4 --warmup 0.06\n"},
	.left_out = left_out,
	.initial = initial,
	.masked_words = true,
};

int gp_cmd_pretrain(int argc, char **argv)
{
	return gp_train_command(&command, argc, argv);
}

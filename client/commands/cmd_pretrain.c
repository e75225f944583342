/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient pretrain: masked language modelling on plain text. All but the options
 * that begin with other values is cmd_train.c's.
 * Test: tests/e2e/pretrain.sh
 */
#include "client/commands/commands.h"
#include "client/commands/train_command.h"

/* Those of pictures, of batch norm and of SGD. */
static const char *const left_out[] = {"augment", "batch-norm", "recalibrate", "input", "skip-bad", NULL};

/* As RoBERTa was trained, with the rate that small models take. */
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
	 .help = "after each epoch, loss and share of right guesses on validation texts, always with the same masks "
		 "(--no-eval: off)"},
	{0},
};

static const struct gp_train_command command = {
	.about =
		{.command = "gpclient pretrain",
		 .synopsis =
			 "(--server HOST:PORT | --local) (--model NAME | --init FILE) --data text:FILE --tokenizer DIR "
			 "[OPTION...]",
		 .about = "Trains an encoder to guess masked words of plain text, a sentence on each line: of each, 15 "
			  "% of\n"
			  "the words, drawn anew in every epoch. The words that are read and those that are guessed "
			  "have one\n"
			  "table, which stays here. What --save writes is what 'gpclient train --init' begins a\n"
			  "classification with.",
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

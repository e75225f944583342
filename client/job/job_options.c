/* SPDX-License-Identifier: Apache-2.0
 *
 * The flags that train, eval and infer share. See job.h. What is checked beyond
 * a flag's own range is in job.c. Test: tests/e2e/bad_input.sh
 */
#include "client/job/job.h"

#include <stddef.h>

#define FIELD(name) offsetof(struct gp_job_settings, name)

static const struct gp_opt where_rows[] = {
	{.name = "server",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server),
	 .value = "HOST:PORT,...",
	 .group = "Where",
	 .help = "gpserverd that runs the body; of several, the first that has room, and another one when that is "
		 "gone; srv:NAME stands for the SRV records of _gpsplit._tcp.NAME"},
	{.name = "follow",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(security.follow),
	 .initial = "ca",
	 .choices = GP_FOLLOW_CHOICES,
	 .help = "whether to go to other servers that a server names: ca = where --tls-ca checks both; any = "
		 "wherever this client may connect; none = never"},
	{.name = "local",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(local),
	 .help = "run the whole model here, without a server: the reference"},
	{.name = "cut",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(cut),
	 .value = "H:T",
	 .help = "first H blocks and last -T blocks here, the rest on the server (see 'gpclient model show'); of an "
		 "encoder also type1, f2l2, f3l2 or f3l1; default: the cut at which the weights of --init have an "
		 "insertion, else " GP_JOB_CUT},
	{.name = "device",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(device),
	 .value = "auto|cpu|cuda[:N]",
	 .initial = "cpu",
	 .help = "device of this side"},
	{.name = "threads",
	 .type = GP_OPT_INT,
	 .offset = FIELD(threads),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 1024,
	 .help = "compute threads of this side, at most 32 for each processor; 0 = one for each"},
	{.name = "precision",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(precision),
	 .initial = "fp32",
	 .choices = GP_PRECISION_CHOICES,
	 .help = "what convolutions and matrix products are computed in: on the server, or in the whole model with "
		 "--local; bf16 (sums stay fp32) needs AVX512_BF16, FEAT_BF16 of ARM64 or a GPU, tf32 a GPU; auto: "
		 "each side tries its own before the first step and takes the fastest, which is printed, and kept by "
		 "checkpoints"},
	{.name = "client-precision",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(client_precision),
	 .initial = "auto",
	 .choices = GP_CLIENT_PRECISION_CHOICES,
	 .help = "what the blocks on this side are computed in; auto: as --precision says where --device "
		 "supports it, else fp32; with --precision auto the fastest here"},
	{.name = "connect-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(connect_timeout_s),
	 .value = "TIME",
	 .initial = "10s",
	 .min = 0.1,
	 .max = 3600,
	 .help = "give up a connection that is not open after this time"},
	{.name = "idle-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(idle_timeout_s),
	 .value = "TIME",
	 .initial = "15s",
	 .min = 1,
	 .max = 86400,
	 .help = "take the link for broken when the server has sent nothing for this long, not even heartbeats"},
	{.name = "reconnect-for",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(reconnect_for_s),
	 .value = "TIME",
	 .initial = "60s",
	 .min = 0,
	 .max = 86400,
	 .help = "when the link breaks or the server is busy, try again for this long, counted until a step is done; "
		 "0 = do not try again"},
};
const struct gp_opt_rows gp_job_where_rows = GP_OPT_ROWS(where_rows);

static const struct gp_opt security_rows[] = {
	{.name = "tls",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(security.tls),
	 .group = "Security",
	 .help = "speak TLS 1.3 with the server; its certificate must be from a CA of this system"},
	{.name = "tls-ca",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(security.ca),
	 .value = "FILE",
	 .help = "speak TLS 1.3; the server's certificate must be from this CA (PEM)"},
	{.name = "tls-name",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(security.name),
	 .value = "NAME",
	 .help = "name in the server's certificate, where it is not the host of --server"},
	{.name = "tls-cert",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(security.cert),
	 .value = "FILE",
	 .help = "this side's certificate, for a server that asks for one (PEM)"},
	{.name = "tls-key",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(security.key),
	 .value = "FILE",
	 .help = "its key (PEM, no passphrase)"},
	{.name = "token-file",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(security.token),
	 .value = "FILE",
	 .help = "holds the token for a server that asks for one; sent inside TLS or over loopback only"},
};
const struct gp_opt_rows gp_job_security_rows = GP_OPT_ROWS(security_rows);

static const struct gp_opt model_rows[] = {
	{.name = "model",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(model),
	 .value = "NAME[:K=V,...]",
	 .group = "Model and data",
	 .help = "for example mobilenetv2:width=0.5,stem=cifar (see 'gpclient model list'); default: the one that the "
		 "file of --init names"},
	{.name = "data",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(data),
	 .value = "NAME[:DIR][,K=V]",
	 .help = "fashion-mnist, idx:DIR, cifar10:DIR[,size=N], cifar100:DIR[,size=N], folder:DIR,size=224, "
		 "synthetic:shape=CxHxW, synthetic:tokens=S; texts: glue-cola:DIR, glue-rte:DIR, glue-sst2:DIR, "
		 "glue-stsb:DIR, tsv:FILE,text=COLUMN,label=COLUMN[,regression]; for pretrain: text:FILE[,val=FILE]"},
	{.name = "tokenizer",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(tokenizer),
	 .value = "DIR",
	 .help = "folder of the tokenizer for texts: vocab.json and merges.txt, or vocab.txt"},
	{.name = "token-cache",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(token_cache),
	 .value = "DIR",
	 .help = "keep the tokens of texts in this folder, and take them from there the next time; they are made "
		 "anew when texts or tokenizer have changed"},
	{.name = "input",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(input),
	 .value = "CxHxW",
	 .help = "image size the model gets; default: the dataset's own"},
	{.name = "init",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(init),
	 .value = "FILE",
	 .help = "start from these weights (safetensors, PyTorch names)"},
	{.name = "init-skip",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(init_skip),
	 .value = "PATTERN",
	 .help = "leave these tensors of --init out (globs, comma-separated), for example 'classifier.*'"},
	{.name = "init-anyway",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(init_anyway),
	 .help = "take the weights of --init for a model that computes something else than theirs (its pad, eps, ...)"},
	{.name = "seed",
	 .type = GP_OPT_INT,
	 .offset = FIELD(seed),
	 .value = "N",
	 .initial = "1",
	 .min = 0,
	 .max = 9e15,
	 .help = "decides the starting weights, the order of the samples, augmentation and dropout"},
};
const struct gp_opt_rows gp_job_model_rows = GP_OPT_ROWS(model_rows);

static const struct gp_opt alone_rows[] = {
	{.name = "cut",
	 .like = &gp_job_where_rows,
	 .help = "where the model is divided, as for train (see 'gpclient model show'); default: the cut at which the "
		 "weights of --init have an insertion, else " GP_JOB_CUT},
	{.name = "device", .like = &gp_job_where_rows, .help = "device that computes"},
	{.name = "threads", .like = &gp_job_where_rows, .help = "compute threads; 0 = one per processor"},
};
const struct gp_opt_rows gp_job_alone_rows = GP_OPT_ROWS(alone_rows);

static const struct gp_opt skip_rows[] = {
	{.name = "skip-bad",
	 .type = GP_OPT_INT,
	 .offset = FIELD(skip_bad),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = UINT32_MAX,
	 .help = "leave out up to N pictures that cannot be read, where each has a file of its own (folder:DIR); all "
		 "are decoded once beforehand to find them. 0: a picture that a look at its header shows to be bad "
		 "ends the run before its first step ('gpclient data check' lists them all)"},
};
const struct gp_opt_rows gp_job_skip_rows = GP_OPT_ROWS(skip_rows);

static const struct gp_opt batch_rows[] = {
	{.name = "batch",
	 .type = GP_OPT_INT,
	 .offset = FIELD(batch),
	 .value = "N",
	 .initial = "64",
	 .min = 1,
	 .max = 1 << 20,
	 .group = "Batches",
	 .help = "samples at a time"},
	{.name = "chunks",
	 .type = GP_OPT_INT,
	 .offset = FIELD(chunks),
	 .value = "N",
	 .initial = "4",
	 .min = 1,
	 .max = 1 << 20,
	 .help = "chunks (micro-batches) of equal size that a batch is cut into; batch norm takes its statistics "
		 "from each"},
	{.name = "window",
	 .type = GP_OPT_INT,
	 .offset = FIELD(window),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 4096,
	 .help = "chunks in flight at once, at most --chunks; 0 = 4, and on a link with long round trips as many as "
		 "hide them, where memory allows it"},
	{.name = "pad",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(pad),
	 .initial = "auto",
	 .choices = GP_PAD_CHOICES,
	 .help = "texts: max = every text is padded to the model's length; drop = a chunk is as long as its longest "
		 "text, and padding does not travel; auto = drop where model and codecs allow it, else max"},
};
const struct gp_opt_rows gp_job_batch_rows = GP_OPT_ROWS(batch_rows);

static const struct gp_opt codec_rows[] = {
	{.name = "codec",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec),
	 .value = "SPEC",
	 .initial = "raw",
	 .group = "Compression",
	 .help = "how the tensors of all four directions are compressed, for example sortquant:bits=6,split=2 "
		 "(see 'gpclient codec list'); of 'gpclient train' alone: auto[:budget=X,every=K,ladder=SPEC|SPEC|...] "
		 "chooses while training, by link, computing and error (client/README.md)"},
	{.name = "codec-act-up",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec_dir[0]),
	 .value = "SPEC",
	 .help = "codec of the activations to the server, in place of --codec"},
	{.name = "codec-act-down",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec_dir[1]),
	 .value = "SPEC",
	 .help = "codec of the activations from the server, in place of --codec"},
};
const struct gp_opt_rows gp_job_codec_rows = GP_OPT_ROWS(codec_rows);

static const struct gp_opt grad_rows[] = {
	{.name = "codec-grad-up",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec_dir[2]),
	 .value = "SPEC",
	 .help = "codec of the gradients to the server, in place of --codec"},
	{.name = "codec-grad-down",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec_dir[3]),
	 .value = "SPEC",
	 .help = "codec of the gradients from the server, in place of --codec"},
};
const struct gp_opt_rows gp_job_grad_rows = GP_OPT_ROWS(grad_rows);

static const struct gp_opt insert_rows[] = {
	{.name = "insert",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(insert),
	 .value = "SPEC",
	 .help = "trainable layers that compress what crosses both cuts: " GP_INSERT_CHOICES
		 "; default: those of the weights of --init"},
	{.name = "insert-up",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(insert_end[GP_INSERT_UP]),
	 .value = "SPEC",
	 .help = "the layers between head and body, in place of those of --insert"},
	{.name = "insert-down",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(insert_end[GP_INSERT_DOWN]),
	 .value = "SPEC",
	 .help = "the layers between body and tail, in place of those of --insert"},
};
const struct gp_opt_rows gp_job_insert_rows = GP_OPT_ROWS(insert_rows);

static const struct gp_opt output_rows[] = {
	{.name = "json",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(json),
	 .group = "Output",
	 .help = "print JSON on standard output: an object at the end; infer: a line for each sample (keys: "
		 "client/JSON.md)"},
	{.name = "log",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(log),
	 .value = "SPEC",
	 .initial = "all=warn",
	 .help = "what is logged: AREA=LEVEL,...; areas: all, main, net, session, codec, data, model; "
		 "levels: error, warn, info, debug, trace"},
	{.name = "config",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(config),
	 .value = "FILE",
	 .help = "read options from FILE (name = value lines); the command line wins"},
};
const struct gp_opt_rows gp_job_output_rows = GP_OPT_ROWS(output_rows);

static const struct gp_opt freeze_rows[] = {
	{.name = "freeze",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(freeze),
	 .value = "PATTERN[,PATTERN]",
	 .help = "leave these parameters as they are (names with wildcards, or head, body, tail): no gradient, no "
		 "update; batch norms frozen whole use their running statistics"},
};
const struct gp_opt_rows gp_job_freeze_rows = GP_OPT_ROWS(freeze_rows);

static const struct gp_opt recalibrate_rows[] = {
	{.name = "recalibrate",
	 .type = GP_OPT_INT,
	 .offset = FIELD(recalibrate),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 1e6,
	 .help = "before each evaluation, take the running statistics of batch norms anew from N batches of training "
		 "samples; they are saved with the weights; 0 = leave them"},
};
const struct gp_opt_rows gp_job_recalibrate_rows = GP_OPT_ROWS(recalibrate_rows);

static const struct gp_opt progress_rows[] = {
	{.name = "progress",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(progress),
	 .initial = "true",
	 .help = "progress line on standard error (--no-progress: off)"},
};
const struct gp_opt_rows gp_job_progress_rows = GP_OPT_ROWS(progress_rows);

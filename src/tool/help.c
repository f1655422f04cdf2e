/* The commands and what each says of itself. */
#include "tool/tool.h"

const char tool_help[] =
    "j2o looks into ONNX models: what they compute, and which line of the JAX program each node came from.\n"
    "\n"
    "usage: j2o COMMAND MODEL.onnx [...]\n"
    "       j2o COMMAND --help\n"
    "       j2o help [COMMAND] | completion SHELL | man | --version\n"
    "\n"
    "  inspect   the model's interface, then every node with its values, shapes and origin; or a summary\n"
    "  blame     the program's source, each line with the nodes it became\n"
    "  locate    one node or value: its trace with source text, what it reads, what reads it\n"
    "  diff      what changed between two exports, by source line\n"
    "  report    a page for a browser: the source, the graph and the nodes side by side\n"
    "  stats     where the bytes are: graph, tensors, metadata\n"
    "  check     whether the model holds together: arity, attributes, element types, shapes, names, order\n"
    "  targets   what is known of the runtimes that models are made for\n"
    "  text      the model in the ONNX text syntax, as onnx.parser reads it\n"
    "  convert   a model from a record of an export, or from a program or a graph as text\n"
    "  passes    the graph after the passes of the converter, or after some of them\n"
    "  strip     a copy without provenance\n"
    "  compact   a copy with every trace stored once\n"
    "  expand    a copy of a compact model with the whole traces on its nodes\n"
    "  split     a copy without provenance, and a sidecar that holds it\n"
    "  join      a copy with the provenance of its sidecar\n"
    "  fill      the weights of a model that was exported without them, from safetensors\n"
    "  graft     a copy of a model that a tool made, with the provenance of the model it was made of\n"
    "\n"
    "Models of any producer can be read; weights are never loaded, so a model of many gigabytes takes no longer than\n"
    "its nodes. - stands for a model on standard input.\n"
    "\n"
    "exit codes: 0 done, 1 the file cannot be read, is no ONNX model, or holds nothing of what was asked for,\n"
    "            2 the command line is wrong. diff: 0 the same, 1 different, 2 trouble of any kind\n";

#define ORIGINAL_HELP                                                                                               \
  "  --original MODEL.onnx is a file that a tool made of this one: where nodes came from is taken from there (j2o " \
  "graft)\n"

#define COMMON_HELP                                      \
  "  --json     one JSON document, for other programs\n" \
  "  --color    auto (the default) colours the output on a terminal, unless NO_COLOR is set; always; never\n"

#define ASK_HELP                                                                                                    \
  "  --line     only what this line became: model.py:42, model.py:40-50, or by function: Block.__call__:72. Nodes " \
  "that\n"                                                                                                          \
  "             were fused from several lines belong to each of them; initializers that the line computed and\n"    \
  "             operations of it that were removed are listed too\n"                                                \
  "  --module   only what this module and those inside it became: blocks.0.attn\n"                                  \
  "  --self     with --line, only what came from the line itself; with --module, not the modules inside\n"          \
  "  --inclusive  also what the line called. Without either option a line from which nothing came itself is "       \
  "answered\n"                                                                                                      \
  "             by what it called\n"

#define SOURCE_HELP                                                                                                 \
  "  --source   a file of the program, where it is not where the model says, or the model does not say; may be "    \
  "given\n"                                                                                                         \
  "             again\n"                                                                                            \
  "  --source-root  a folder in which files that the model names are read; may be given again. Without it that is " \
  "the\n"                                                                                                           \
  "             working folder alone: a model may name any file of this machine\n"

#define ORIGIN_HELP                                                                                                    \
  "\n"                                                                                                                 \
  "A node has an origin when the model was exported with JAX2ONNX_ENABLE_STACKTRACE_METADATA=1 in the environment.\n"  \
  "JAX2ONNX_STACKTRACE_DETAIL=full (or compact, which takes less room) writes whole traces, with file names. Traces\n" \
  "that PyTorch's exporter writes (pkg.torch.onnx.stack_trace) are understood too.\n"

#define OUTPUT_HELP                                                                                        \
  "  --no-sync  do not wait until the disk has it: faster, and a crash of the machine may leave nothing\n" \
  "  --json     say what was done as JSON\n"

#define LIMIT_HELP                                                                                                   \
  "  --limit    how much a file may be unfolded to, such as 500M or 2G: a few letters of a compact model can stand " \
  "for\n"                                                                                                            \
  "             gigabytes (default: 256M, of traces 64M or 256 times the table)\n"

static const char inspect_help[] =
    "usage: j2o inspect MODEL.onnx [--summary] [--line PLACE] [--module PATH] [--self|--inclusive] [--op NAME]\n"
    "                              [--name NAME] [--full] [--json] [--color=auto|always|never]\n"
    "\n"
    "Prints the model's version, inputs and outputs, then its nodes in order: name, operator, inputs and outputs with\n"
    "their types, and where the node came from:\n"
    "\n"
    "  at Block.__call__:72      the line of the program that was converted\n"
    "  by SinPlugin.lower:31     the part of the converter that made the node\n"
    "\n"
    "The bodies of If, Loop and Scan stand indented below their node, functions at the end.\n"
    "\n"
    "  --summary  how many nodes there are by operator, function, file and module\n" ASK_HELP
    "  --op       only nodes of this operator; * and ? stand for any letters, as in --op 'Reduce*'\n"
    "  --name     only nodes of this name, or that make a value of this name; * and ? as above\n"
    "  --full     also the converter's call stack (outermost first) and the JAX traceback (innermost "
    "first)\n" LIMIT_HELP COMMON_HELP ORIGIN_HELP;

static const char text_help[] =
    "usage: j2o text MODEL.onnx [--data FILE]\n"
    "\n"
    "Prints the model in the ONNX text syntax. onnx.parser.parse_model reads it back, and so do j2o passes and j2o\n"
    "convert; only the elements of large tensors are left out, and control characters, for which the syntax has no\n"
    "escape, are spelled: \\x1b. The metadata of nodes, for which it has no place, are comments above the node.\n"
    "\n"
    "  --data     write the elements of large tensors to this file, and where they are in it into the text; the two\n"
    "             belong into one folder\n";

static const char targets_help[] =
    "usage: j2o targets [--json]\n"
    "\n"
    "Prints what is known of runtimes that models are made for: what they cannot do, or do otherwise than the "
    "standard\n"
    "says, and in which versions it was seen. Conversion asks these rows, and works around what they say.\n"
    "\n"
    "  --json     one JSON document, for other programs\n";

static const char check_help[] =
    "usage: j2o check MODEL.onnx [--json] [--color=auto|always|never]\n"
    "\n"
    "Holds the model against the standard: values are used where they are defined, nodes stand in order, names are\n"
    "unique, every operator has the inputs, attributes and element types of its opset, shapes agree, and bodies and\n"
    "functions take and give what their nodes do. Prints each fault with its node, and the line of the program where\n"
    "the model says it. What is not known, such as a symbolic size or an operator of another domain, is no fault.\n"
    "Exit code 1 when there is one.\n"
    "\n" COMMON_HELP;

static const char blame_help[] =
    "usage: j2o blame MODEL.onnx [FILE.py] [--line PLACE] [--module PATH] [--source FILE.py]...\n"
    "                 [--source-root FOLDER]... [--json] [--color=auto|always|never]\n"
    "\n"
    "Prints the program's source with what each line became: how many nodes of its own (a node that was fused from\n"
    "several lines counts for each), how many with those of the code that it called, which operators; constants that\n"
    "were computed at export; and what was removed, with the reason. With FILE.py the whole file is listed; without,\n"
    "the lines that became something, of every file. Where a source file cannot be read, the functions and lines are\n"
    "listed without their text.\n"
    "\n"
    "A model with minimal provenance names functions and lines, but no files: FILE.py is then matched by the\n"
    "functions that it defines.\n"
    "\n" ASK_HELP SOURCE_HELP LIMIT_HELP COMMON_HELP ORIGIN_HELP;

static const char locate_help[] =
    "usage: j2o locate MODEL.onnx NODE|VALUE [--full] [--source FILE.py]... [--source-root FOLDER]... [--json]\n"
    "                  [--color=auto|always|never]\n"
    "       j2o locate MODEL.onnx --line PLACE|--module PATH [--self|--inclusive] ...\n"
    "\n"
    "Prints a node, found by its name or by the name of a value that it makes: its attributes and types, the trace\n"
    "that led to it with the source text where the files can be read, what makes its inputs and what reads its\n"
    "outputs. A graph input or initializer is shown with what reads it. Exits with 1 when there is nothing of that\n"
    "name. With --line or --module, everything that came from there is shown.\n"
    "\n" ASK_HELP "  --full     also the converter's call stack, and frames inside libraries\n" SOURCE_HELP LIMIT_HELP
        COMMON_HELP ORIGIN_HELP;

static const char diff_help[] =
    "usage: j2o diff A.onnx B.onnx [--line PLACE] [--module PATH] [--self|--inclusive] [--weights]\n"
    "                [--source FILE.py]... [--source-root FOLDER]... [--json] [--color=auto|always|never]\n"
    "\n"
    "Prints what changed from A to B, grouped by source line: nodes that are gone (-), new (+), or changed (~), and\n"
    "the same for inputs, outputs and initializers. Nodes are matched by what they compute, then by the line they\n"
    "came from, so names may change freely. Provenance itself is not compared: a line that moved is no difference.\n"
    "\n"
    "  --processed  B is what a tool made of A: of each line of A, which nodes were fused, quantised, retyped,\n"
    "             rewritten, folded into a constant or removed, and what they became\n"
    "  --weights  compare the contents of all tensors; without it, of those up to 4 KiB, and only the types and "
    "shapes\n"
    "             of larger ones, which is said. External data are read in the model's folder and below, nowhere "
    "else\n" ASK_HELP SOURCE_HELP LIMIT_HELP COMMON_HELP
    "\n"
    "exit codes: 0 no difference, 1 they differ, 2 a file or the contents of a tensor cannot be read (\"not "
    "compared\"),\n"
    "            or the command line is wrong\n";

static const char strip_help[] =
    "usage: j2o strip MODEL.onnx -o OUT.onnx [--all] [--no-sync] [--json]\n"
    "\n"
    "Writes a copy without provenance: every metadata entry whose key begins with pkg.jax2onnx. goes, and so do the\n"
    "references of a compact model. Everything else is copied byte by byte. OUT may be MODEL itself, or - for\n"
    "standard output.\n"
    "\n"
    "  --all      remove every metadata entry and every doc_string, whoever wrote them\n" OUTPUT_HELP;

static const char fill_help[] =
    "usage: j2o fill MODEL.onnx --from SOURCE [-o FILE] [--rename PATH=KEY …] [--by-reference] [--allow-surplus]\n"
    "                [--max-shard-size 5G] [--no-sync]\n"
    "\n"
    "Gives a model the weights that to_onnx(..., weights=\"later\") left to come. Without -o the model itself is\n"
    "replaced. Nothing is written unless every weight is found, with its type and shape.\n"
    "\n"
    "  --from     safetensors: a file, a folder with such files and their index, or the index\n"
    "  --rename   how a weight of the model is called there; * stands for one step of a path, the same on both sides:\n"
    "             'layers.*.kernel=model.layers.*.weight'; may be given again\n"
    "  --by-reference  the model refers to the data where they lie, in its folder or below; nothing is copied\n"
    "  --allow-surplus  there may be weights that the model has no place for\n"
    "  --max-shard-size  how large a file of weights may become\n"
    "  --no-sync  does not wait until the disk has the files\n";

static const char compact_help[] =
    "usage: j2o compact MODEL.onnx -o OUT.onnx [--no-sync] [--json]\n"
    "\n"
    "Writes a copy of a model with full provenance in which every frame and trace is stored once, in one metadata\n"
    "entry of the model (pkg.jax2onnx.provenance), and each node carries a number. Nothing is lost: j2o expand gives\n"
    "the first file back, byte by byte, and every command reads compact models as if they were full. An export with\n"
    "JAX2ONNX_STACKTRACE_DETAIL=compact writes the same file directly.\n"
    "\n" OUTPUT_HELP;

static const char expand_help[] =
    "usage: j2o expand MODEL.onnx -o OUT.onnx [--limit SIZE] [--no-sync] [--json]\n"
    "\n"
    "Writes a copy of a compact model with the whole traces on its nodes, as an export with\n"
    "JAX2ONNX_STACKTRACE_DETAIL=full writes it.\n"
    "\n" LIMIT_HELP OUTPUT_HELP;

static const char graft_help[] =
    "usage: j2o graft ORIGINAL.onnx PROCESSED.onnx -o OUT.onnx [--json]\n"
    "       j2o graft ORIGINAL.onnx PROCESSED.onnx --map [--json] [--color=auto|always|never]\n"
    "\n"
    "Writes a copy of PROCESSED with the provenance of ORIGINAL, of which a tool made it: a simplifier, a quantiser, "
    "a\n"
    "version converter, a runtime that saves what it optimised. Each node says how it was found\n"
    "(pkg.jax2onnx.grafted):\n"
    "\n"
    "  name       the name of the node or of its value\n"
    "  structure  the same operator on values that were found, from the inputs on or back from the outputs\n"
    "  region     a new node between values that were found: it has the traces of what stood there\n"
    "\n"
    "A node of which nothing is sure says nothing. Everything else is copied byte by byte; weights are not loaded. "
    "The\n"
    "result is compact when ORIGINAL is. When PROCESSED was not made of ORIGINAL, nothing is written and the exit "
    "code\n"
    "is 1. OUT may be PROCESSED itself, or - for standard output.\n"
    "\n"
    "  --map      print of each node of PROCESSED which nodes of ORIGINAL it came from, and write nothing\n"
    "  --json     say what was done as JSON\n";

static const char split_help[] =
    "usage: j2o split MODEL.onnx -o SMALL.onnx [--sidecar SMALL.j2o] [--sources [--source-root FOLDER]...] [--json]\n"
    "\n"
    "Writes a copy without provenance and a file that holds it. The copy keeps an identity (pkg.jax2onnx.identity, a\n"
    "digest of the graph without metadata), by which the two know each other. Every command reads the sidecar that\n"
    "stands beside a model (model.j2o beside model.onnx) or that --sidecar names; one of another model is refused.\n"
    "\n"
    "  --sidecar  where the provenance goes; SMALL.j2o by default\n"
    "  --sources  also the text of the source files that the model names, of those in the working folder or in a\n"
    "             --source-root\n"
    "  --json     say what was done as JSON\n";

static const char join_help[] =
    "usage: j2o join SMALL.onnx -o MODEL.onnx [--sidecar SMALL.j2o] [--json]\n"
    "\n"
    "Writes the model that j2o split took apart, byte by byte.\n"
    "\n"
    "  --sidecar  where the provenance is; SMALL.j2o by default\n"
    "  --json     say what was done as JSON\n";

static const char stats_help[] =
    "usage: j2o stats MODEL.onnx [--provenance] [--top N] [--json] [--color=auto|always|never]\n"
    "\n"
    "Prints where the bytes of a model are: graph, tensors (also those in other files), metadata by key; then the\n"
    "nodes by operator, and the largest tensors.\n"
    "\n"
    "  --provenance  instead: how many nodes and initializers say their line, file and module, how many lines they\n"
    "             came from and how many vanished, how deep the traces are, and what it takes; for models of any\n"
    "             producer\n"
    "  --top      how many tensors to list (default: 10)\n" COMMON_HELP;

static const char report_help[] =
    "usage: j2o report MODEL.onnx -o PAGE.html [--against OTHER.onnx] [--source FILE.py]... [--source-root FOLDER]...\n"
    "                  [--libraries] [--profile TIMES.json] [--model-explorer FILE.json] [--json]\n"
    "\n"
    "Writes one page for a browser, which needs nothing else: the program's source, the graph drawn as boxes that\n"
    "open down to single nodes, and a list of the nodes, linked by colour, with search, filters and the trace of the\n"
    "chosen node. PAGE may be - for standard output. The names of the source files that the page holds are printed.\n"
    "\n"
    "  --against  another model to compare this one with: both are drawn, and lines and nodes say what changed from\n"
    "             OTHER to MODEL\n" SOURCE_HELP LIMIT_HELP
    "  --libraries  also the source of the libraries that the traces pass, of files that may be read (--source-root)\n"
    "  --profile  times of nodes, to show where the time goes: what jax2onnx profile --json wrote, or the profiler of\n"
    "             ONNX Runtime, or {\"node\": microseconds, ...}\n"
    "  --model-explorer\n"
    "             write the line of every node, or its time, as node data that Model Explorer loads; -o may be left\n"
    "             out then\n" OUTPUT_HELP ORIGIN_HELP;

static const char convert_help[] =
    "usage: j2o convert RECORD|PROGRAM.txt|GRAPH.txt -o MODEL.onnx [option]...\n"
    "\n"
    "Makes a model without JAX or Python. A record is what JAX2ONNX_RECORD=FILE or jax2onnx export --record FILE "
    "wrote\n"
    "during an export: the model is the same, byte by byte. A program is the part of a record from its line "
    "\"program\"\n"
    "on. A graph in the ONNX text syntax is written as it stands.\n"
    "\n"
    "  -o                    the model to write\n"
    "  --opset               the ONNX operator set; this and what follows go before what the record says\n"
    "  --stacktrace          off, minimal, full or compact: how much each node says about where it came from\n"
    "  --normalization       auto, prefer_native or force_decomposed\n"
    "  --name                the graph's name\n"
    "  --input-names, --output-names    a,b,c: names for all of them, in order\n"
    "  --nchw-inputs, --nchw-outputs    0,2: which are to be taken and given as NCHW\n"
    "  --external-threshold  tensors of at least this many bytes go to a second file\n"
    "  --web                 everything in one file\n"
    "  --disable-pass        leave this pass out; may be given again\n"
    "  --dump-passes         a folder for the graph, as text, before and after each pass\n"
    "  --limit               how much memory it may take, such as 8G; 1 GiB and 1024 times the files unless given\n";

static const char passes_help[] =
    "usage: j2o passes GRAPH.txt|MODEL.onnx [--pass NAME]... [--time-passes] [-o OUT.onnx]\n"
    "\n"
    "Runs the passes of the converter over a graph, given as text (j2o text prints it) or as a model, and prints it "
    "as\n"
    "text. The passes run until none of them finds anything more, and what each does to provenance is checked.\n"
    "\n"
    "  --pass         this pass alone, once; may be given again: they run in that order\n"
    "  --time-passes  also how often each pass ran, how often it changed something, and what it cost, as comments\n"
    "  --limit        how much memory it may take, such as 8G; 1 GiB and 1024 times the file unless given\n"
    "  -o             write the graph as a model instead\n";

const Command tool_commands[] = {
    {"inspect", run_inspect, inspect_help,
     OPTION_ORIGINAL | OPTION_SIDECAR | OPTION_JSON | OPTION_FULL | OPTION_SUMMARY | OPTION_ASK | OPTION_FILTER |
         OPTION_COLOR | OPTION_SOURCE | OPTION_LIMIT,
     1, 1},
    {"blame", run_blame, blame_help,
     OPTION_ORIGINAL | OPTION_SIDECAR | OPTION_JSON | OPTION_ASK | OPTION_COLOR | OPTION_SOURCE | OPTION_LIMIT, 1, 2},
    {"locate", run_locate, locate_help,
     OPTION_ORIGINAL | OPTION_SIDECAR | OPTION_JSON | OPTION_FULL | OPTION_ASK | OPTION_COLOR | OPTION_SOURCE |
         OPTION_LIMIT,
     1, 2},
    {"diff", run_diff, diff_help,
     OPTION_PROCESSED | OPTION_JSON | OPTION_ASK | OPTION_COLOR | OPTION_WEIGHTS | OPTION_SOURCE | OPTION_LIMIT, 2, 2},
    {"stats", run_stats, stats_help,
     OPTION_ORIGINAL | OPTION_SIDECAR | OPTION_JSON | OPTION_COLOR | OPTION_TOP | OPTION_PROVENANCE | OPTION_LIMIT, 1,
     1},
    {"report", run_report, report_help,
     OPTION_ORIGINAL | OPTION_SIDECAR | OPTION_OUTPUT | OPTION_PAGE | OPTION_JSON | OPTION_SOURCE | OPTION_LIMIT, 1, 1},
    {"check", run_check, check_help, OPTION_JSON | OPTION_COLOR, 1, 1},
    {"targets", run_targets, targets_help, OPTION_JSON, 0, 0},
    {"text", run_text, text_help, OPTION_DATA, 1, 1},
    {"convert", run_convert, convert_help, OPTION_CONVERT | OPTION_OUTPUT | OPTION_LIMIT, 1, 1},
    {"passes", run_passes_command, passes_help, OPTION_PASSES | OPTION_MAY_OUTPUT | OPTION_LIMIT, 1, 1},
    {"strip", run_strip, strip_help, OPTION_OUTPUT | OPTION_ALL | OPTION_JSON, 1, 1},
    {"fill", run_fill, fill_help, OPTION_FILL | OPTION_MAY_OUTPUT, 1, 1},
    {"compact", run_compact, compact_help, OPTION_OUTPUT | OPTION_JSON, 1, 1},
    {"expand", run_expand, expand_help, OPTION_OUTPUT | OPTION_JSON | OPTION_LIMIT, 1, 1},
    {"split", run_split, split_help,
     OPTION_OUTPUT | OPTION_SIDECAR | OPTION_CARRY | OPTION_SOURCE | OPTION_JSON | OPTION_LIMIT, 1, 1},
    {"join", run_join, join_help, OPTION_OUTPUT | OPTION_SIDECAR | OPTION_JSON, 1, 1},
    {"graft", run_graft, graft_help, OPTION_OUTPUT | OPTION_JSON | OPTION_MAP | OPTION_COLOR | OPTION_LIMIT, 2, 2},
    {0},
};

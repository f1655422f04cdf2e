/* The commands and what each says of itself. */
#include "tool/tool.h"

const char tool_help[] =
    "j2o inspects ONNX models: what they compute, and which line of the JAX program each node came from.\n"
    "\n"
    "usage: j2o COMMAND MODEL.onnx [...]\n"
    "       j2o COMMAND --help\n"
    "       j2o help [COMMAND] | completion SHELL | man | --version\n"
    "\n"
    "  inspect   print the inputs and outputs, then every node with its values, shapes and origin; or a summary\n"
    "  blame     print the source of the program with the nodes that each line became\n"
    "  locate    print one node or value: its trace with source text, its inputs, and what reads its outputs\n"
    "  diff      compare two exports by source line\n"
    "  report    write a page for the browser: source, graph and nodes side by side\n"
    "  stats     print where the bytes are: graph, tensors, metadata\n"
    "  check     validate a model: names, order, arity, attributes, element types, shapes\n"
    "  targets   list the known limitations of runtimes\n"
    "  text      print the model in the ONNX text syntax, which onnx.parser reads\n"
    "  convert   make a model from the record of an export, or from a program or graph in text form\n"
    "  passes    run the passes of the converter, or some of them, on a graph\n"
    "  strip     write a copy without provenance\n"
    "  compact   write a copy that stores every trace only once\n"
    "  expand    write a copy of a compact model with the whole traces on its nodes\n"
    "  split     write a copy without provenance, and a sidecar file with it\n"
    "  join      write a copy with the provenance from its sidecar\n"
    "  fill      add weights from safetensors to a model that was exported without them\n"
    "  graft     copy provenance to a model that a tool has rewritten\n"
    "\n"
    "Models of any producer can be read. Weights are never loaded, so a model of many gigabytes takes no longer than\n"
    "its nodes do. Use - to read a model from standard input.\n"
    "\n"
    "exit codes: 0 success; 1 the file cannot be read, is not an ONNX model, or contains nothing that matches;\n"
    "            2 the command line is wrong. diff: 0 no differences, 1 differences, 2 any error\n";

#define ORIGINAL_HELP                                                                                              \
  "  --original the model that this one was made from by a tool; provenance is taken from there (see j2o graft)\n" \
  "  --sidecar  the file with the provenance, written by j2o split (default: the one next to the model)\n"

#define COMMON_HELP                      \
  "  --json     print a JSON document\n" \
  "  --color    auto (the default) colours output on a terminal unless NO_COLOR is set; always; never\n"

#define ASK_HELP                                                                                                       \
  "  --line     only what this line became: model.py:42, model.py:40-50, or by function: Block.__call__:72. Nodes\n"   \
  "             that were fused from several lines belong to each of them; initializers that the line computed and\n"  \
  "             its removed operations are listed too\n"                                                               \
  "  --module   only what this module and its submodules became: blocks.0.attn; \"\": the model itself. Nodes that\n"  \
  "             were fused from several modules belong to each of them\n"                                              \
  "  --self     with --line, only what came from the line itself; with --module, without submodules\n"                 \
  "  --inclusive  also what the line called; with --module, its submodules too, as without the option. With neither\n" \
  "             option, a line that produced nothing itself is answered with what it called\n"

#define SOURCE_HELP                                                                                               \
  "  --source   a source file of the program, if it has moved or the model does not record it; can be repeated\n" \
  "  --source-root  a folder from which source files may be read; can be repeated. By default only the working\n" \
  "             directory is allowed, since a model may name any file on this machine\n"

#define ORIGIN_HELP                                                                                                    \
  "\n"                                                                                                                 \
  "Nodes have provenance if the model was exported with JAX2ONNX_ENABLE_STACKTRACE_METADATA=1 in the environment.\n"   \
  "JAX2ONNX_STACKTRACE_DETAIL=full (or compact, which is smaller) records whole traces, with file names. The traces\n" \
  "of PyTorch's exporter (pkg.torch.onnx.stack_trace) are understood too.\n"

#define OUTPUT_HELP                                                                               \
  "  --no-sync  do not wait for the disk: faster, but a crash of the machine may lose the file\n" \
  "  --json     print the result as JSON\n"

#define LIMIT_HELP                                                                                                    \
  "  --limit    the maximum size after expansion, such as 500M or 2G: a few bytes of a compact model can stand for\n" \
  "             gigabytes (default: 256M; for traces 64M or 256 times the table)\n"

static const char inspect_help[] =
    "usage: j2o inspect MODEL.onnx [--summary] [--line PLACE] [--module PATH] [--self|--inclusive] [--op NAME]\n"
    "                              [--name NAME] [--full] [--json] [--color=auto|always|never]\n"
    "\n"
    "Prints the version, inputs and outputs of the model, then its nodes in order: name, operator, inputs and outputs\n"
    "with their types, and where the node came from:\n"
    "\n"
    "  at Block.__call__:72      the line of the program\n"
    "  by SinPlugin.lower:31     the part of the converter that created the node\n"
    "\n"
    "The bodies of If, Loop and Scan are indented below their node; functions come last.\n"
    "\n"
    "  --summary  count nodes by operator, function, file and module\n" ASK_HELP
    "  --op       only nodes with this operator; * and ? are wildcards, as in --op 'Reduce*'\n"
    "  --name     only nodes with this name or with an output of this name; * and ? are wildcards\n"
    "  --full     also print the converter's call stack (outermost first) and the JAX traceback (innermost "
    "first)\n" ORIGINAL_HELP LIMIT_HELP COMMON_HELP ORIGIN_HELP;

static const char text_help[] =
    "usage: j2o text MODEL.onnx [--data FILE]\n"
    "\n"
    "Prints the model in the ONNX text syntax. onnx.parser.parse_model, j2o passes and j2o convert can read it back,\n"
    "except that the elements of large tensors are omitted and that control characters, for which the syntax has no\n"
    "escape, are spelled out: \\x1b. The metadata of a node is printed as comments above it.\n"
    "\n"
    "  --data     write the elements of large tensors to this file and refer to it in the text; keep both files in "
    "the\n"
    "             same folder\n";

static const char targets_help[] =
    "usage: j2o targets [--json]\n"
    "\n"
    "Lists the known limitations of runtimes: what they cannot do, or do differently from the standard, and the\n"
    "versions in which this was observed. The converter works around them.\n"
    "\n"
    "  --json     print a JSON document\n";

static const char check_help[] =
    "usage: j2o check MODEL.onnx [--target NAME] [--json] [--color=auto|always|never]\n"
    "\n"
    "Validates the model against the standard: values are defined before they are used, names are unique, every\n"
    "operator has the inputs, attributes and element types of its opset, shapes agree, and bodies and functions match\n"
    "their nodes. Prints each error with its node and, if the model records it, the line of the program. What is not\n"
    "known, such as a symbolic size or an operator of another domain, is not an error. The exit code is 1 if there\n"
    "are errors.\n"
    "\n"
    "  --target   also report what this runtime is known not to run; see j2o targets for the names\n" COMMON_HELP;

static const char blame_help[] =
    "usage: j2o blame MODEL.onnx [FILE.py] [--line PLACE] [--module PATH] [--source FILE.py]...\n"
    "                 [--source-root FOLDER]... [--json] [--color=auto|always|never]\n"
    "\n"
    "Prints the source of the program with what each line became: the number of its own nodes (a node that was fused\n"
    "from several lines counts for each), the number including the code it called, and the operators; constants that\n"
    "were computed during the export; and removed operations, with the reason. With FILE.py the whole file is listed,\n"
    "otherwise every line that became something. If a source file cannot be read, functions and lines are listed\n"
    "without their text.\n"
    "\n"
    "A model with minimal provenance records functions and lines, but no files; FILE.py is then matched by the\n"
    "functions it defines.\n"
    "\n" ASK_HELP SOURCE_HELP ORIGINAL_HELP LIMIT_HELP COMMON_HELP ORIGIN_HELP;

static const char locate_help[] =
    "usage: j2o locate MODEL.onnx NODE|VALUE [--full] [--source FILE.py]... [--source-root FOLDER]... [--json]\n"
    "                  [--color=auto|always|never]\n"
    "       j2o locate MODEL.onnx --line PLACE|--module PATH [--self|--inclusive] ...\n"
    "\n"
    "Prints a node, given by its name or by the name of an output: its attributes and types, its trace with the "
    "source\n"
    "text if the files can be read, what produces its inputs, and what reads its outputs. A graph input or\n"
    "initializer is shown with what reads it. The exit code is 1 if there is nothing with that name. With --line or\n"
    "--module, everything that came from there is shown.\n"
    "\n" ASK_HELP
    "  --full     also print the converter's call stack and frames inside libraries\n" SOURCE_HELP ORIGINAL_HELP
        LIMIT_HELP COMMON_HELP ORIGIN_HELP;

static const char diff_help[] =
    "usage: j2o diff A.onnx B.onnx [--line PLACE] [--module PATH] [--self|--inclusive] [--weights]\n"
    "                [--source FILE.py]... [--source-root FOLDER]... [--json] [--color=auto|always|never]\n"
    "\n"
    "Prints what changed from A to B, grouped by source line: nodes that were removed (-), added (+) or changed (~),\n"
    "and the same for inputs, outputs and initializers. Nodes are matched by what they compute, then by the line they\n"
    "came from; names do not matter. Provenance itself is not compared: a line that only moved is not a difference.\n"
    "\n"
    "  --processed  B was made from A by a tool: print for each line of A which nodes were fused, quantised, retyped,\n"
    "             rewritten, folded into a constant or removed, and what they became\n"
    "  --weights  compare the contents of all tensors; by default only tensors of up to 4 KiB are compared, and the\n"
    "             rest is reported as not compared. External data is read only from the folder of the model and "
    "below\n" ASK_HELP SOURCE_HELP LIMIT_HELP COMMON_HELP
    "\n"
    "exit codes: 0 no differences; 1 differences; 2 a file or the contents of a tensor cannot be read (\"not\n"
    "            compared\"), or the command line is wrong\n";

static const char strip_help[] =
    "usage: j2o strip MODEL.onnx -o OUT.onnx [--all] [--no-sync] [--json]\n"
    "\n"
    "Writes a copy without provenance: metadata entries whose key starts with pkg.jax2onnx. are removed, and so are\n"
    "the references in a compact model. Everything else is copied byte for byte. OUT can be MODEL itself, or - for\n"
    "standard output.\n"
    "\n"
    "  --all      remove all metadata entries and all doc_strings, whoever wrote them\n" OUTPUT_HELP;

static const char fill_help[] =
    "usage: j2o fill MODEL.onnx --from SOURCE [-o FILE] [--rename PATH=KEY …] [--by-reference] [--allow-surplus]\n"
    "                [--max-shard-size 5G] [--no-sync]\n"
    "\n"
    "Adds the weights to a model that was exported with to_onnx(..., weights=\"later\"). Without -o the model itself "
    "is\n"
    "replaced. Nothing is written unless every weight is found, with the right type and shape.\n"
    "\n"
    "  --from     safetensors: a file, a folder with such files and their index, or the index\n"
    "  --rename   the name of a weight in the source; * stands for one step of a path, the same on both sides:\n"
    "             'layers.*.kernel=model.layers.*.weight'; can be repeated\n"
    "  --by-reference  refer to the data in the safetensors, which must be in the model's folder or below\n"
    "  --allow-surplus  ignore weights that the model does not have\n"
    "  --max-shard-size  the maximum size of a file of weights\n"
    "  --no-sync  do not wait for the disk\n";

static const char compact_help[] =
    "usage: j2o compact MODEL.onnx -o OUT.onnx [--no-sync] [--json]\n"
    "\n"
    "Writes a copy of a model with full provenance that stores every frame and trace once, packed, in the metadata of\n"
    "the model (pkg.jax2onnx.provenance); nodes keep their line. Nothing is lost: j2o expand restores the original\n"
    "file byte for byte, and every command reads compact models as if they were full. An export with\n"
    "JAX2ONNX_STACKTRACE_DETAIL=compact writes the same file directly.\n"
    "\n" OUTPUT_HELP;

static const char expand_help[] =
    "usage: j2o expand MODEL.onnx -o OUT.onnx [--limit SIZE] [--no-sync] [--json]\n"
    "\n"
    "Writes a copy of a compact model with the whole traces on its nodes, as an export with\n"
    "JAX2ONNX_STACKTRACE_DETAIL=full would write it.\n"
    "\n" LIMIT_HELP OUTPUT_HELP;

static const char graft_help[] =
    "usage: j2o graft ORIGINAL.onnx PROCESSED.onnx -o OUT.onnx [--json]\n"
    "       j2o graft ORIGINAL.onnx PROCESSED.onnx --map [--json] [--color=auto|always|never]\n"
    "\n"
    "Writes a copy of PROCESSED with the provenance of ORIGINAL, from which a tool made it: a simplifier, a "
    "quantiser,\n"
    "a version converter, or a runtime that saves its optimised model. Each node records how it was matched\n"
    "(pkg.jax2onnx.grafted):\n"
    "\n"
    "  name       by the name of the node or of its output\n"
    "  structure  the same operator applied to matched values, working forwards from the inputs or back from the "
    "outputs\n"
    "  region     a new node between matched values: it gets the traces of everything it replaced\n"
    "\n"
    "A node that cannot be matched with certainty gets no provenance. Everything else is copied byte for byte; "
    "weights\n"
    "are not loaded. The result is compact if ORIGINAL is. If PROCESSED was not made from ORIGINAL, nothing is "
    "written\n"
    "and the exit code is 1. OUT can be PROCESSED itself, or - for standard output.\n"
    "\n"
    "  --map      print for each node of PROCESSED which nodes of ORIGINAL it came from, and write nothing\n"
    "  --json     print the result as JSON\n";

static const char split_help[] =
    "usage: j2o split MODEL.onnx -o SMALL.onnx [--sidecar SMALL.j2o] [--sources [--source-root FOLDER]...] [--json]\n"
    "\n"
    "Writes a copy without provenance, and a sidecar file with the provenance. The copy keeps an identity\n"
    "(pkg.jax2onnx.identity, a digest of the graph without metadata) that ties the two together. Every command reads\n"
    "the sidecar next to a model (model.j2o for model.onnx) or the one given by --sidecar; the sidecar of a different\n"
    "model is rejected.\n"
    "\n"
    "  --sidecar  the file for the provenance (default: SMALL.j2o)\n"
    "  --sources  also store the text of source files in the working directory or in a --source-root\n"
    "  --json     print the result as JSON\n";

static const char join_help[] =
    "usage: j2o join SMALL.onnx -o MODEL.onnx [--sidecar SMALL.j2o] [--json]\n"
    "\n"
    "Restores the model that j2o split took apart, byte for byte.\n"
    "\n"
    "  --sidecar  the file with the provenance (default: SMALL.j2o)\n"
    "  --json     print the result as JSON\n";

static const char stats_help[] =
    "usage: j2o stats MODEL.onnx [--provenance] [--top N] [--json] [--color=auto|always|never]\n"
    "\n"
    "Prints where the bytes of a model are: graph, tensors (including those in other files), metadata by key; then\n"
    "nodes by operator, and the largest tensors.\n"
    "\n"
    "  --provenance  print instead how many nodes and initializers have a line, file and module, how many lines they\n"
    "             came from and how many vanished, how deep the traces are, and how many bytes they take; works for\n"
    "             models of any producer\n"
    "  --top      the number of tensors to list (default: 10)\n" ORIGINAL_HELP COMMON_HELP;

static const char report_help[] =
    "usage: j2o report MODEL.onnx -o PAGE.html [--against OTHER.onnx] [--source FILE.py]... [--source-root FOLDER]...\n"
    "                  [--libraries] [--profile TIMES.json] [--model-explorer FILE.json] [--json]\n"
    "\n"
    "Writes a single, self-contained page for the browser: the source of the program, the graph drawn as boxes that\n"
    "open down to single nodes, and a list of the nodes, linked by colour, with search, filters and the trace of the\n"
    "selected node. PAGE can be - for standard output. The names of the source files in the page are printed.\n"
    "\n"
    "  --against  compare with another model: both are drawn, and lines and nodes show what changed from OTHER to\n"
    "             MODEL\n" SOURCE_HELP ORIGINAL_HELP LIMIT_HELP
    "  --libraries  include the source of libraries that appear in traces, if it may be read (see --source-root)\n"
    "  --profile  the times of nodes: the output of jax2onnx profile --json or of ONNX Runtime's profiler, or\n"
    "             {\"node\": microseconds, ...}\n"
    "  --model-explorer\n"
    "             write the line of every node, or its time, as node data for Model Explorer; -o is then "
    "optional\n" OUTPUT_HELP ORIGIN_HELP;

static const char convert_help[] =
    "usage: j2o convert RECORD|PROGRAM.txt|GRAPH.txt -o MODEL.onnx [option]...\n"
    "\n"
    "Makes a model without JAX or Python. A record, written during an export by JAX2ONNX_RECORD=FILE or jax2onnx\n"
    "export --record FILE, gives the same model byte for byte. A program is the part of a record that starts with the\n"
    "line \"program\". A graph in the ONNX text syntax is written as it is.\n"
    "\n"
    "  -o                    the model to write\n"
    "  --opset               the ONNX opset; this and the following options override the record\n"
    "  --target              the runtime that the model is made for; see j2o targets for the names\n"
    "  --stacktrace          off, minimal, full or compact: how much provenance to record on each node\n"
    "  --normalization       auto, prefer_native or force_decomposed\n"
    "  --name                the name of the graph\n"
    "  --input-names, --output-names    a,b,c: names for all inputs or outputs, in order\n"
    "  --nchw-inputs, --nchw-outputs    0,2: which inputs or outputs are NCHW in the model\n"
    "  --external-threshold  store tensors of at least this many bytes in a second file\n"
    "  --web                 keep everything in one file\n"
    "  --disable-pass        skip this pass; can be repeated\n"
    "  --dump-passes         a folder for the graph as text before and after each pass\n"
    "  --limit               the maximum memory, such as 8G (default: 1 GiB plus 1024 times the size of the files)\n";

static const char passes_help[] =
    "usage: j2o passes GRAPH.txt|MODEL.onnx [--pass NAME]... [--time-passes] [-o OUT.onnx]\n"
    "\n"
    "Runs the passes of the converter on a graph, given as text (the output of j2o text) or as a model, and prints "
    "the\n"
    "result as text. The passes run until none of them changes anything, and their effect on provenance is checked.\n"
    "\n"
    "  --pass         run only this pass, once; can be repeated to run several in that order\n"
    "  --time-passes  also print how often each pass ran, how often it changed something, and its time, as comments\n"
    "  --limit        the maximum memory, such as 8G (default: 1 GiB plus 1024 times the size of the file)\n"
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
    {"check", run_check, check_help, OPTION_TARGET | OPTION_JSON | OPTION_COLOR, 1, 1},
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

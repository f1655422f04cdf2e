/* The nodes of a model with the places they came from, and how they are chosen and counted. */
#ifndef J2O_TOOL_NODES_H
#define J2O_TOOL_NODES_H

#include "tool/tool.h"

/* A node's metadata by key; NULL when absent. */
Str node_metadata(const Node *node, const char *key);

/* The user's line. */
typedef struct Place {
  Str function; /* NULL: the model does not say where the node came from */
  Str file;     /* NULL: the model does not say, as with minimal provenance */
  uint32_t line;
} Place;

typedef struct PlacedNode {
  const Node *node;
  Place place;
} PlacedNode;

typedef struct NodeList {
  ARRAY(PlacedNode) nodes; /* of the graph and of the bodies inside it, then of functions */
  size_t placed_count;     /* those with a place */
  size_t file_count;       /* those with a file */
} NodeList;

/* Marks every node with its index, in its scratch. */
NodeList *model_nodes(Context *context, Model *model);
static inline size_t node_index(const Node *node) { return (size_t)(uintptr_t)node->scratch; }
/* Fails unless some node has a place, and says how to export a model that has them. */
/* --source: each file stands for the one of the model whose path ends most like it. */
void match_sources(Job *job, const NodeList *list);
void require_places(Job *job, const NodeList *list);
extern const char no_places_help[];

/* One line of a trace, in the file's own bytes. */
typedef struct TraceFrame {
  const char *file, *function;
  size_t file_length, function_length;
  uint32_t line;
  bool begins_block; /* another source of a node that was merged from several */
} TraceFrame;

typedef struct TraceCursor {
  const char *at, *end;
  bool is_torch; /* outermost first, as Python prints them; else innermost first */
  bool started;
} TraceCursor;

TraceCursor node_trace(const Node *node); /* empty when there is none */
bool trace_next(TraceCursor *cursor, TraceFrame *frame);
bool is_library_file(const char *path, size_t length);

/* ---- choosing ---- */

typedef struct Filter {
  const char *op, *name; /* patterns, or NULL */
  const char *where;     /* file or function of --line, or NULL */
  uint32_t first, last;  /* its lines */
} Filter;

Filter job_filter(Job *job); /* fails with ERROR_VALUE when --line cannot be understood */
bool filter_passes(Job *job, const Filter *filter, const PlacedNode *placed);
/* Is `given` the end of the path, whole parts only? */
bool path_ends_with(const char *path, const char *given);

/* ---- counting ---- */

typedef struct Tally Tally;
typedef struct Tallies {
  Map known;
  ARRAY(Tally *) items; /* in order of first appearance until sorted */
} Tallies;

struct Tally {
  Str key;
  uint64_t key_number; /* a line, where keys are places; else 0 */
  size_t count;
  uint64_t bytes, more_bytes; /* the user's own */
  Tallies operators;
};

Tally *tally_count(Context *context, Tallies *tallies, Str key, uint64_t key_number);
void tallies_sort(Tallies *tallies);                                    /* largest count first, then by name */
Str operator_name(Context *context, const Node *node);                  /* "Sin", "domain.Op" */
void report_operators(Report *report, Tallies *operators, size_t most); /* "Mul 3, Sin" */
void json_tallies(Report *report, const Tallies *tallies, const char *key, bool with_operators);

#endif

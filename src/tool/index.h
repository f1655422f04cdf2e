/* The index: where everything in a model came from, asked by line or by module. Every command, the page and the
 * commands in Python answer from it, so that one question has one answer.
 *
 * Item    a node, an initializer, or an equation that left nothing behind.
 * Origin  what items that came the same way share: the user's line and the traces. Each distinct one is read once.
 * Frame   a line and the function it stands in.
 * Line    a line of a file; where the model names no files, of a function.
 *
 * They know each other by their rows. What is kept grows with the text of the distinct traces and the number of items.
 */
#ifndef J2O_TOOL_INDEX_H
#define J2O_TOOL_INDEX_H

#include "tool/tool.h"
#include "tool/trace_text.h"

/* The user's line. */
typedef struct Place {
  Str function; /* NULL: the model does not say where the item came from */
  Str file;     /* NULL: the model does not say, as with minimal provenance */
  uint32_t line;
} Place;

/* How an item belongs to a line; the closest is the largest. */
typedef enum LineRelation {
  RELATION_NONE,
  RELATION_THROUGH, /* a trace passes the line: it called what became the item, or is a library's code that did it */
  RELATION_WITHIN,  /* the item's expression goes on over the line, as the second line of a sum of two */
  RELATION_FUSED,   /* a further trace ends there: the item does this line's work too */
  RELATION_OWN,     /* the item's own line */
  RELATIONS,
} LineRelation;

extern const char *const relation_names[RELATIONS];

typedef enum ItemKind { INDEX_NODE, INDEX_INITIALIZER, INDEX_REMOVED, INDEX_KINDS } ItemKind;

enum { NO_ROW = UINT32_MAX };

typedef struct Passage {
  uint32_t origin;
  LineRelation relation;
} Passage;

typedef struct IndexLine {
  Str file; /* NULL: the model does not say */
  uint32_t number;
  bool is_library;
  ARRAY(Str) functions;    /* that have a frame there; at least one */
  ARRAY(Passage) passages; /* each origin once */
} IndexLine;

typedef struct IndexFrame {
  uint32_t line;
  Str function;
} IndexFrame;

/* One trace of an origin: rows of frames, innermost first. */
typedef struct Chain {
  const uint32_t *frames;
  size_t count;
  size_t end; /* the frame that stands for the user's line */
} Chain;

/* A line that an origin belongs to, by a frame there. */
typedef struct Passed {
  uint32_t frame;
  LineRelation relation;
} Passed;

typedef struct IndexOrigin {
  Place place;
  uint32_t frame;       /* of the place; NO_ROW where that is unknown */
  ARRAY(Chain) chains;  /* the primary one first; none with minimal provenance */
  ARRAY(Passed) passed; /* each line once, the closest first */
  ARRAY(uint32_t) items;
} IndexOrigin;

struct Item {
  ItemKind kind;
  const Node *node;   /* of a node */
  const Value *value; /* of an initializer */
  Str pass, reason;   /* of what was removed */
  const MetadataList *metadata;
  Place place;
  uint32_t origin;   /* NO_ROW: the model does not say */
  Str module;        /* dotted path; NULL: the model does not say */
  Str fused_modules; /* those of what was fused into it, a line for each; or NULL */
};

struct OriginIndex {
  Model *model;
  ARRAY(Item)
  items; /* nodes of the graph and the bodies inside it, then of functions; initializers; what was removed */
  size_t counts[INDEX_KINDS];
  size_t placed_count; /* nodes with a place */
  ARRAY(IndexOrigin) origins;
  ARRAY(IndexFrame) frames;
  ARRAY(IndexLine) lines;
  Map known_origins, known_frames, known_lines, values;
};

/* Marks every node with its row, in its scratch. */
OriginIndex *model_index(Context *context, Model *model);
static inline size_t node_index(const Node *node) { return (size_t)(uintptr_t)node->scratch; }
static inline const Item *node_item(const OriginIndex *index, const Node *node) {
  return &index->items.items[node_index(node)];
}
const Item *value_item(const OriginIndex *index, const Value *value); /* of an initializer; else NULL */
void report_place(Report *report, Place place);                       /* "Block.__call__:72" */
Str item_reason(Context *context, const Item *item);                  /* of what was removed: "removed: dead" */

/* Fails unless some item has a place, and says how to export a model that has them. */
void require_places(Job *job, const OriginIndex *index);
extern const char no_places_help[];

/* ---- asking ---- */

typedef enum Reach {
  REACH_NEAREST,   /* what came from the line; where nothing did, expressions that go on over it; else what passes it */
  REACH_SELF,      /* what came from the line, alone or fused; of a module: without the modules inside */
  REACH_INCLUSIVE, /* whatever passes the line */
} Reach;

typedef struct Question {
  const char *where;    /* file or function of --line, or NULL */
  uint32_t first, last; /* its lines */
  const char *module;   /* or NULL; "" asks for what is in the model itself, outside all modules inside it */
  Reach reach;
} Question;

/* What --line, --module, --self and --inclusive ask. Fails with ERROR_VALUE when --line cannot be understood. */
Question job_question(Job *job);
bool asks_anything(const Question *question);

typedef struct OriginCounts {
  size_t items[INDEX_KINDS];
} OriginCounts;

/* A question that asks nothing is answered by everything. */
typedef struct Answer {
  const unsigned char *relations; /* of every item: a LineRelation, NONE unless it is part of the answer */
  size_t counts[INDEX_KINDS];
  const OriginCounts *origins; /* the same by origin */
  LineRelation closest;        /* of the relations to the line; NONE: nothing was found */
} Answer;

Answer index_answer(Job *job, const OriginIndex *index, const Question *question);
bool answer_holds(const Answer *answer);                                       /* anything at all */
void report_nothing(Report *report, const Job *job, const Question *question); /* "no node comes from gpt.py:18" */

bool line_is_asked(Job *job, const IndexLine *line, const Question *question);

/* What of an answer a line became. */
typedef struct LineCounts {
  size_t self[INDEX_KINDS];      /* own and fused */
  size_t fused[INDEX_KINDS];     /* of these */
  size_t inclusive[INDEX_KINDS]; /* also through */
} LineCounts;

LineCounts line_counts(const Answer *answer, const IndexLine *line);

bool path_ends_with(const char *path, const char *given); /* whole parts only */
/* --source: each file stands for the one of the model whose path ends most like it, or for files it does not name. */
void index_sources(Job *job, OriginIndex *index);
/* The model's name for a file of the user's: the one whose end has most in common with it; NULL: there is none. */
Str index_file(const OriginIndex *index, const char *given);
/* Lines without a file that a function of the given source could have are said to be in it from now on. */
void index_adopt(Job *job, OriginIndex *index, const char *given);

#endif

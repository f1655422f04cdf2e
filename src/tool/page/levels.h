/* A model as levels: boxes that can be opened. A graph is divided by the modules of its nodes, else by the functions of
 * the program that made them; the bodies of a node are levels inside it. Each level is laid out by itself, so opening
 * and closing boxes only puts drawings together that are there.
 *
 * The boxes of a level never form a cycle when the nodes do not: a module that is called again and again, with others
 * in between, is a box for each call.
 */
#ifndef J2O_TOOL_PAGE_LEVELS_H
#define J2O_TOOL_PAGE_LEVELS_H

#include "tool/index.h"
#include "tool/page/layout.h"

typedef enum LevelKind {
  LEVEL_MODEL,    /* graphs and functions beside each other, where there are several */
  LEVEL_GRAPH,    /* the main graph */
  LEVEL_FUNCTION, /* the body of one of the model's functions */
  LEVEL_NODE,     /* a node with several bodies */
  LEVEL_BODY,
  LEVEL_MODULE, /* nodes of one module of the program's */
  LEVEL_CALL,   /* nodes of one call in the program */
  LEVEL_PART,   /* some of very many */
} LevelKind;

typedef struct Level Level;

typedef enum LevelBoxKind { BOX_NODE, BOX_LEVEL, BOX_PORT } LevelBoxKind;

/* A box of a level: a node, which may open to its bodies; a level; or a port, where a value enters or leaves. */
typedef struct LevelBox {
  LevelBoxKind kind;
  LayoutPlace place;  /* of a port: top or bottom; else free */
  size_t node;        /* index of a node */
  Level *inside;      /* what opens; of a node: NULL when it has no bodies */
  const Value *value; /* of a port; NULL: of the values for which there was no room */
  bool named;         /* a port that is an input or output of a graph */
} LevelBox;

struct Level {
  LevelKind kind;
  Str name;      /* its own part of the path */
  Str path;      /* of a module: all parts, with dots between them */
  Str class;     /* of a module, where the model names it */
  Level *parent; /* NULL: the outermost */
  uint32_t slot; /* which item of its parent's */
  uint32_t depth, number;
  const Graph *graph;    /* of a graph, body or function */
  size_t node;           /* whose body or bodies, else SIZE_MAX */
  size_t node_count;     /* in it and in what is inside it */
  size_t port_counts[2]; /* those without a name: at the top, at the bottom */
  ARRAY(LevelBox) items;
  Layout layout;                    /* its first boxes are the items */
  ARRAY(const Value *) edge_values; /* of its edges */
};

typedef struct Levels {
  Context *context;
  const OriginIndex *indexes[2]; /* of the models; nodes of the second are numbered on */
  size_t first_count;            /* how many nodes the first model has */
  size_t node_count;
  ARRAY(Level *) all; /* parents before children */
  Map classes;        /* of modules, by path: pkg.jax2onnx.modules of the model */
  Map of_graphs;      /* the Level of each graph */
  Level **homes;      /* of each node; NULL: it is a constant, which is shown with what reads it */
  uint32_t *slots;    /* which item of its home it is */
  Neighbours reads;   /* of each node: those of its own graph that it or what is inside it reads from */
  size_t *marks;      /* by node; 0 between uses */
  Map calls;          /* the calls of each trace, as parts of a path */
} Levels;

/* One model, or two side by side. Nodes are numbered as node_index says. */
const Levels *model_levels(Context *context, OriginIndex *const *indexes, size_t count);

/* What is known of a node. */
static inline const Item *level_item(const Levels *levels, size_t node) {
  if (node < levels->first_count) return &levels->indexes[0]->items.items[node];
  return &levels->indexes[1]->items.items[node - levels->first_count];
}

/* ---- levels.c, levels_divide.c, levels_connect.c ---- */

Level *level_new(Levels *levels, LevelKind kind, Str name, Level *parent);
void level_add_node(Levels *levels, Level *level, size_t node);
void level_add_level(Level *level, Level *inside, Context *context);
uint32_t level_port(Levels *levels, Level *level, LayoutPlace place, const Value *value);

/* Divides a graph's nodes into boxes of the level. */
void levels_divide(Levels *levels, Level *level, const size_t *nodes, size_t count);

/* Draws the edges, through ports where they cross the border of a level. */
void levels_connect(Levels *levels);
/* Lays every level out, with its ports where the level around it wants them. */
void levels_lay_out(Levels *levels);

/* A value that is shown with what reads it and not as an edge. */
bool value_is_constant(const Value *value);

#endif

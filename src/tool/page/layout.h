/* A layered drawing of one level of a graph: boxes in ranks from top to bottom, edges downwards from rank to rank.
 *
 * Knows nothing of models. Guarantees: boxes of one rank do not overlap and are at least a gap apart; an edge leads to
 * a lower rank unless it closes a cycle; the same boxes and edges give the same drawing. An edge that passes ranks goes
 * through points in them, and all edges of one value share theirs. Work and memory are linear in boxes, edges and
 * points, and there are at most a few times as many points as boxes: the longest edges go without when there were more.
 */
#ifndef J2O_TOOL_PAGE_LAYOUT_H
#define J2O_TOOL_PAGE_LAYOUT_H

#include "base/array.h"

typedef enum LayoutPlace { LAYOUT_FREE, LAYOUT_TOP, LAYOUT_BOTTOM } LayoutPlace;

typedef struct LayoutBox {
  double width; /* 0: a point of an edge */
  LayoutPlace place;
  uint32_t rank, order; /* from the top, from the left */
  double x;             /* of its middle; the leftmost box begins at 0 */
} LayoutBox;

enum { NO_POINTS = UINT32_MAX };

typedef struct LayoutEdge {
  uint32_t value; /* edges of one value from one box share points */
  uint32_t from, to;
  uint32_t points; /* the box that is the first point, the others follow; NO_POINTS: a straight line */
} LayoutEdge;

typedef struct Layout {
  ARRAY(LayoutBox) boxes; /* those given, then points */
  ARRAY(LayoutEdge) edges;
  size_t box_count; /* without points */
  uint32_t rank_count;
  bool keep_ends; /* boxes at the top and the bottom stay in the order that they are given with */
} Layout;

enum { LAYOUT_GAP = 24, LAYOUT_POINT_GAP = 14 };

/* Fills in ranks, orders and places, and adds the points. */
void layout_place(Context *context, Layout *layout);

/* ---- the steps: layout_rank.c, layout_order.c, layout_align.c ---- */

typedef struct Neighbours {
  uint32_t *starts, *items; /* of box i: items[starts[i]] up to items[starts[i + 1]] */
} Neighbours;

/* The boxes of each rank from left to right, and what each is joined with in the ranks above and below. */
typedef struct Ranks {
  uint32_t *starts, *boxes; /* of rank r: boxes[starts[r]] up to boxes[starts[r + 1]] */
  Neighbours above, below;
  size_t segment_count;
} Ranks;

void layout_rank(Context *context, Layout *layout);
Ranks layout_ranks(Context *context, const Layout *layout);
void layout_order(Context *context, Layout *layout, Ranks *ranks);
void layout_align(Context *context, Layout *layout, const Ranks *ranks);
uint64_t layout_crossings(Context *context, const Layout *layout, const Ranks *ranks);

#endif

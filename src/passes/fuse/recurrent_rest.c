/* Steps that do more than a cell: layers one upon the other in one loop, or a decoder with states of its own.
 *
 * What depends on the cell only by the state that each step hands on reads the states of all steps, as it reads other
 * slices, and the operator computes them before the loop. The next layer is then a cell by itself.
 */
#include "passes/fuse/recurrent_cell.h"
#include "passes/loop_body.h"

typedef struct Rest {
  Cell *cell;
  Map needed;            /* nodes of the body that compute it */
  ARRAY(Node *) unread;  /* those whose inputs were not looked at yet */
  ARRAY(Value *) leaves; /* values that are the state handed on, in some order of axes */
  bool is_whole;         /* nothing else of the cell is read */
} Rest;

static bool is_state(const Cell *cell, const Value *value) {
  return value == cell->hidden.value || (cell->op == OP_LSTM && value == cell->memory.value);
}

static void need(Rest *rest, Value *value) {
  Context *context = rest->cell->rewriter->context;
  View view;
  if (!value || value->graph != rest->cell->body || value->tensor) return;
  if (is_next_hidden(rest->cell, value, &view)) {
    for (size_t i = 0; i < rest->leaves.count; i++) {
      if (rest->leaves.items[i] == value) return;
    }
    array_push(context, &rest->leaves, value);
    return;
  }
  if (is_state(rest->cell, value)) rest->is_whole = false;
  Node *node = value->producer;
  if (!node || map_get_pointer(&rest->needed, node)) return;
  if (node_has_subgraph(node)) rest->is_whole = false; /* it may read anything */
  *map_slot_pointer(context, &rest->needed, node) = node;
  array_push(context, &rest->unread, node);
}

static void read_rest(Rest *rest) {
  Cell *cell = rest->cell;
  rest->is_whole = true;
  for (uint32_t i = 0; i < cell->scan->output_count; i++) {
    if (cell->of_rest[i]) need(rest, cell->body->outputs.items[i]->value);
  }
  for (size_t i = 0; i < rest->unread.count && rest->is_whole; i++) {
    const Node *node = rest->unread.items[i];
    for (uint32_t k = 0; k < node->input_count; k++) need(rest, node_input(node, k));
  }
}

bool can_leave_rest(Cell *cell) {
  Rest rest = {.cell = cell};
  if (!scan_runs_one_way(cell->scan)) return false;
  read_rest(&rest);
  return rest.is_whole && rest.leaves.count > 0;
}

/* The state handed on, for the rest alone: what the cell itself reads goes. */
static void read_slices(Rest *rest, Value *leaf) {
  Cell *cell = rest->cell;
  View view;
  if (!is_next_hidden(cell, leaf, &view)) return;
  Value *all = cell_from_operator(cell, cell->states, &view, true);
  Value *slice = scan_add_input(cell->scan, cell_in_type(cell, all, leaf->type.dtype), leaf->type);
  for (Use *use = leaf->uses, *next; use; use = next) {
    next = use->next;
    if (use->node && map_get_pointer(&rest->needed, use->node)) use_set(use, slice);
  }
  for (uint32_t i = 0; i < cell->scan->output_count; i++) {
    Use *output = cell->body->outputs.items[i];
    if (!cell->of_rest[i] || output->value != leaf) continue;
    const Origin *origin = REWRITE_ORIGIN(cell->rewriter, cell->scan);
    use_set(output, graph_node(cell->body, origin, OP_Identity, &slice, 1, &slice->type, 1, NULL)->outputs[0]);
  }
}

void leave_rest(Cell *cell, Node *recurrent) {
  Rest rest = {.cell = cell};
  read_rest(&rest);
  for (size_t i = 0; i < rest.leaves.count; i++) read_slices(&rest, rest.leaves.items[i]);
  drop_unused_results(cell->scan);
  for (uint32_t i = cell->state_count; i-- > 0;) {
    if (!cell->of_rest[i]) scan_drop_carried(cell->scan, i);
  }
  for (Node *node = cell->body->last, *previous; node; node = previous) {
    previous = node->previous;
    rewrite_drop_unused(cell->rewriter, node, recurrent);
  }
}

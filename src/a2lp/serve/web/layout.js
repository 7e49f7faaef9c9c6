// Where everything lies in the grid: cells have one size, so that every place is arithmetic.

/** @typedef {import("./order.js").Group} Group */
/** @typedef {{ group: number, head: boolean, start: number, count: number }} Line */

/** @param {ArrayLike<number>} values ascending @param {number} wanted @returns {number} the last that is not above it */
function lastBelow(values, wanted) {
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (values[middle] <= wanted) low = middle;
    else high = middle - 1;
  }
  return low;
}

export class Layout {
  /**
   * @param {Group[]} groups
   * @param {number} columns
   * @param {number} cell height of a line of cells
   * @param {number} head height of a heading
   */
  constructor(groups, columns, cell, head) {
    this.groups = groups;
    this.columns = columns;
    this.cell = cell;
    this.head = head;
    this.tops = new Float64Array(groups.length);
    this.firstLines = new Float64Array(groups.length);
    this.starts = new Float64Array(groups.length);
    this.height = 0;
    this.lines = 0;
    groups.forEach((group, g) => {
      const lines = Math.ceil(group.count / columns);
      this.tops[g] = this.height;
      this.firstLines[g] = this.lines;
      this.starts[g] = group.start;
      this.height += head + lines * cell;
      this.lines += 1 + lines;
    });
  }

  /** @param {number} line @returns {Line} */
  line(line) {
    const g = lastBelow(this.firstLines, line);
    const within = line - this.firstLines[g] - 1;
    if (within < 0) return { group: g, head: true, start: this.groups[g].start, count: 0 };
    const start = this.groups[g].start + within * this.columns;
    return { group: g, head: false, start, count: Math.min(this.columns, this.groups[g].start + this.groups[g].count - start) };
  }

  /** @param {number} line */
  top(line) {
    const g = lastBelow(this.firstLines, line);
    const within = line - this.firstLines[g] - 1;
    return this.tops[g] + (within < 0 ? 0 : this.head + within * this.cell);
  }

  /** @param {number} y the line that lies there */
  at(y) {
    if (!this.groups.length) return 0;
    const g = lastBelow(this.tops, Math.max(0, y));
    const into = y - this.tops[g] - this.head;
    const lines = Math.ceil(this.groups[g].count / this.columns);
    return this.firstLines[g] + (into < 0 ? 0 : 1 + Math.min(lines - 1, Math.floor(into / this.cell)));
  }

  /** @param {number} index place in the order @returns {{ line: number, column: number, group: number }} */
  find(index) {
    const g = lastBelow(this.starts, index);
    const within = index - this.groups[g].start;
    return { line: this.firstLines[g] + 1 + Math.floor(within / this.columns), column: within % this.columns, group: g };
  }

  /**
   * One step by an arrow key, over headings, in the same column where there is one.
   * @param {number} index
   * @param {number} dx
   * @param {number} dy
   */
  step(index, dx, dy) {
    const last = this.groups[this.groups.length - 1];
    const end = last ? last.start + last.count - 1 : 0;
    if (!dy) return Math.min(end, Math.max(0, index + dx));
    const { line, column } = this.find(index);
    let to = line + dy;
    if (to >= 0 && to < this.lines && this.line(to).head) to += dy;
    if (to < 1 || to >= this.lines) return index;
    const { start, count } = this.line(to);
    return start + Math.min(column, count - 1);
  }
}

'use strict';
// The page is whole without this: it adds what only a click can show. Every text goes in as text.
(() => {
  document.documentElement.classList.add('with-script');
  const data = JSON.parse(document.getElementById('data').textContent);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const el = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children.filter((child) => child !== null));
    return node;
  };
  const drawn = (name, attributes = {}, text) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // Figures in words, as the rest of the page has them.
  const three = (value) => (value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2));
  const scaled = (value, step, units) => {
    let place = 0;
    while (Math.abs(value) >= step * 0.9995 && place + 1 < units.length) { value /= step; place += 1; }
    return `${three(value)} ${units[place]}`.trim();
  };
  const shown = (value, unit) => {
    if (value === null || !Number.isFinite(value)) return '?';
    if (unit === 'ns') return scaled(value, 1000, ['ns', 'µs', 'ms', 's']);
    if (unit === 'bytes') return scaled(value, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
    return scaled(value, 1000, ['', 'k', 'M', 'G', 'T']);
  };
  const times = (beside) => (beside ? `${three(beside.ratio)}× ${beside.name}${beside.low === null ? '' : ` (${three(beside.low)} to ${three(beside.high)})`}` : '');
  const colour = (place) => `nth${place % 8}`;

  // One chart: lines or bars over a logarithmic axis, drawn at the size of its place.
  const chart = ({ title, x, y, series, xLabel, yLabel, bars, marks = [] }) => {
    // On a phone it is drawn smaller, so that its words are not.
    const isNarrow = innerWidth < 560;
    const [width, height, left, right, top, bottom] = isNarrow ? [340, 230, 54, 14, 10, 34] : [560, 250, 58, 14, 10, 34];
    const svg = drawn('svg', { viewBox: `0 0 ${width} ${height}`, class: 'chart', role: 'img', 'aria-label': title });
    const along = (value) => left + ((value - x.from) / (x.to - x.from || 1)) * (width - left - right);
    const up = (value) => height - bottom - ((value - y.from) / (y.to - y.from || 1)) * (height - top - bottom);
    let free = 0;
    for (const [at, label] of x.ticks) {
      svg.append(drawn('line', { class: 'rule', x1: along(at), x2: along(at), y1: top, y2: height - bottom }));
      // A label that would stand in the one before is left out; its line stays.
      if (along(at) - label.length * 3.2 < free) continue;
      free = along(at) + label.length * 3.2 + 4;
      svg.append(drawn('text', { class: 'label', x: along(at), y: height - bottom + 15, 'text-anchor': 'middle' }, label));
    }
    for (const [at, label] of y.ticks) {
      svg.append(drawn('line', { class: 'rule', x1: left, x2: width - right, y1: up(at), y2: up(at) }));
      svg.append(drawn('text', { class: 'label', x: left - 6, y: up(at) + 4, 'text-anchor': 'end' }, label));
    }
    svg.append(drawn('text', { class: 'label', x: (left + width - right) / 2, y: height - 3, 'text-anchor': 'middle' }, xLabel));
    for (const { name, place, points } of series) {
      const group = drawn('g', { class: colour(place) });
      const path = points.map(([a, b], at) => `${at ? 'L' : 'M'}${along(a).toFixed(1)} ${up(b).toFixed(1)}`).join('');
      if (bars && path) {
        const [first, last] = [points[0], points[points.length - 1]];
        const area = drawn('path', { class: 'dot', 'fill-opacity': 0.16 });
        area.setAttribute('d', `${path}L${along(last[0]).toFixed(1)} ${up(y.from)}L${along(first[0]).toFixed(1)} ${up(y.from)}Z`);
        group.append(area);
      }
      const line = drawn('path', { class: 'joined', d: path });
      line.append(drawn('title', {}, name));
      group.append(line);
      svg.append(group);
    }
    // Labels of neighbouring marks stand below each other.
    marks.forEach(([at, label], place) => {
      svg.append(drawn('line', { class: 'mark', x1: along(at), x2: along(at), y1: top, y2: height - bottom }));
      const side = along(at) > (left + width) / 2 ? 'end' : 'start';
      svg.append(drawn('text', { class: 'label', x: along(at) + (side === 'end' ? -4 : 4), y: top + 11 + 13 * place, 'text-anchor': side }, label));
    });
    return el('figure', {}, el('figcaption', {}, title, el('i', {}, ` ${yLabel}`)), svg);
  };

  const decades = (from, to, unit) => {
    const ticks = [];
    const spread = Math.log10(to / from);
    const steps = spread < 1.2 ? [1, 2, 3, 5, 7] : spread < 3 ? [1, 3] : [1];
    for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power += spread > 7 ? 2 : 1) {
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= from * 0.999 && value <= to * 1.001) ticks.push([Math.log10(value), shown(value, unit)]);
      }
    }
    return ticks;
  };

  // The shape of each contender's samples.
  const distribution = (figure, rows) => {
    const [from, to] = figure.span;
    const count = Math.max(...rows.map(({ row }) => row.bars.length));
    const step = Math.log10(to / from) / count;
    const series = rows.map(({ row, place }) => ({
      name: row.name,
      place,
      points: row.bars.flatMap((share, at) => [
        [Math.log10(from) + at * step, (share * row.peak) / 10],
        [Math.log10(from) + (at + 1) * step, (share * row.peak) / 10],
      ]),
    }));
    const most = Math.max(...series.flatMap(({ points }) => points.map(([, share]) => share)), 1e-9);
    const power = 10 ** Math.floor(Math.log10(most / 4));
    const line = [1, 2, 5, 10].map((part) => part * power).find((it) => it * 5 >= most);
    const lines = [];
    for (let at = 0; at <= Math.ceil(most / line - 1e-9); at += 1) lines.push([at * line, `${Number((at * line).toPrecision(3))} %`]);
    const first = rows.find(({ row }) => row.quantiles.length);
    const marks = first ? [0.5, 0.9, 0.99].map((quantile) => [quantile, first.row.quantiles[data.quantiles.indexOf(quantile)]])
      .filter(([, value]) => value >= from && value <= to)
      .map(([quantile, value]) => [Math.log10(value), `${quantile * 100} %: ${shown(value, figure.unit)}`]) : [];
    return chart({
      title: 'How the samples spread', yLabel: `share of the samples in each bar${marks.length && rows.length > 1 ? `; percentiles of ${first.row.name}` : ''}`, marks, xLabel: figure.unit === 'ns' ? 'time of one operation, logarithmic' : `${figure.unit}, logarithmic`, series, bars: true,
      x: { from: Math.log10(from), to: Math.log10(to), ticks: decades(from, to, figure.unit) },
      y: { from: 0, to: lines[lines.length - 1][0], ticks: lines },
    });
  };

  // The percentile curve: each step to the right is a tenth of the samples of the step before.
  const percentiles = (figure, rows) => {
    const nines = (quantile) => -Math.log10(1 - quantile);
    const enough = (row, quantile) => quantile < 1 && row.samples * (1 - quantile) >= 1;
    const series = rows.map(({ row, place }) => ({
      name: row.name,
      place,
      points: data.quantiles.flatMap((quantile, at) =>
        enough(row, quantile) && row.quantiles[at] > 0 ? [[nines(quantile), Math.log10(row.quantiles[at])]] : []),
    })).filter(({ points }) => points.length > 1);
    if (!series.length) return null;
    const values = series.flatMap(({ points }) => points.map(([, value]) => value));
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (high - low < 0.3) [low, high] = [low - 0.15, high + 0.15];
    const end = Math.max(1, ...series.flatMap(({ points }) => points.map(([at]) => at)));
    const ticks = ['50', '90', '99', '99.9', '99.99', '99.999', '99.9999']
      .map((percent) => [nines(Number(percent) / 100), `${percent} %`]).filter(([at]) => at <= end + 0.01);
    return chart({
      title: 'Percentiles', yLabel: 'so many of the samples took no longer', xLabel: 'share of the samples', series,
      x: { from: 0, to: end, ticks },
      y: { from: low, to: high, ticks: decades(10 ** low, 10 ** high, figure.unit) },
    });
  };

  // The panel of a figure.
  const dialog = el('dialog', { class: 'detail', 'aria-labelledby': 'detail-title' });
  document.body.append(dialog);
  let current = -1;
  const hash = (place) => `#figure=${encodeURIComponent(data.figures[place].id)}`;
  const show = (place) => {
    const figure = data.figures[place];
    if (!figure) return;
    current = place;
    const rows = figure.rows.map((row, at) => ({ row, place: at }));
    const measured = rows.filter(({ row }) => row.bars.length);
    const button = (label, title, act) => {
      const node = el('button', { type: 'button', title }, label);
      node.addEventListener('click', act);
      return node;
    };
    const counters = (row) => Object.entries(row.counters || {}).map(([name, value]) => `${name} ${three(value)}`).join(', ');
    const table = el('table', { class: 'beside' },
      el('thead', {}, el('tr', {}, ...['contender', 'figure', '95 % interval', 'p99', 'rate', '× floor', '× best peer', 'CPUs']
        .map((name, at) => el('th', { scope: 'col', class: at ? 'n' : '' }, name)))),
      el('tbody', {}, ...rows.map(({ row, place: at }) => el('tr', {},
        el('th', { scope: 'row' }, el('span', { class: `key ${colour(at)}` }), row.name, el('i', {}, ` ${row.kind}`),
          row.args ? el('span', { class: 'what' }, row.args) : null, counters(row) ? el('span', { class: 'what' }, counters(row)) : null,
          el('span', { class: 'what' }, row.used)),
        ...[['figure', row.modes || `${shown(row.median, figure.unit)} ${row.statistic}`], ['95 %', row.modes || row.low === null ? '–' : `${shown(row.low, figure.unit)} to ${shown(row.high, figure.unit)}`],
          ['p99', row.p99 === null ? '' : shown(row.p99, figure.unit)], ['rate', `${shown(row.rate, '')}/s`], ['× floor', times(row.floor)], ['× best peer', times(row.peer)],
          ['CPUs', row.cpus === null ? '?' : row.cpus.toFixed(2)]].map(([label, text]) => el('td', { class: 'n', 'data-label': label }, text))))));
    const warnings = [...new Set(figure.rows.flatMap((row) => (row.warnings || []).map((text) => `${row.name}: ${text}`)))];
    dialog.replaceChildren(
      el('header', {}, el('h2', { id: 'detail-title' }, el('code', {}, figure.id)), el('nav', {},
        button('‹', 'the figure before (←)', () => step(-1)), button('›', 'the next figure (→)', () => step(1)),
        button('×', 'close (Esc)', () => dialog.close()))),
      el('p', {}, figure.what),
      measured.length ? el('div', { class: 'charts' }, distribution(figure, measured), percentiles(figure, measured) || '')
        : el('p', { class: 'aside' }, 'No samples are kept of this figure.'),
      table,
      warnings.length ? el('details', {}, el('summary', {}, `Warnings: ${warnings.length}`), el('ul', {}, ...warnings.map((text) => el('li', {}, text)))) : '',
    );
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    if (location.hash !== hash(place)) history.replaceState(null, '', hash(place));
  };
  const step = (by) => show((current + by + data.figures.length) % data.figures.length);
  dialog.addEventListener('close', () => history.replaceState(null, '', location.pathname + location.search));
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowLeft') step(-1);
    if (event.key === 'ArrowRight') step(1);
  });
  const wanted = () => {
    const id = location.hash.startsWith('#figure=') ? decodeURIComponent(location.hash.slice(8)) : null;
    const place = data.figures.findIndex((figure) => figure.id === id);
    if (place >= 0) show(place);
  };
  addEventListener('hashchange', wanted);

  // Rows and rungs open it.
  const rows = all('table.figures tr[data-figure]');
  const opens = (node, place) => {
    node.classList.add('opens');
    node.addEventListener('click', () => { if (!String(getSelection())) show(place); });
    node.setAttribute('tabindex', '0');
    node.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); show(place); }
    });
  };
  const placeOf = (row) => Number(row.dataset.figure);
  rows.forEach((row) => opens(row, placeOf(row)));
  // A band behind each rung, to be pointed at, and a veil over it for what the filter leaves out. The ladder
  // has the rows of the table that are times, in their order.
  const timed = rows.filter((row) => data.figures[placeOf(row)].unit === 'ns');
  const veils = [];
  all('section[aria-labelledby=ladder] svg.chart').forEach((svg) => {
    const lines = all('line.row', svg);
    const names = all('text.name', svg);
    const number = (node, name) => Number(node.getAttribute(name));
    const width = svg.viewBox.baseVal.width;
    const bands = lines.map((line, at) => {
      const y = number(line, 'y1');
      const top = Math.min(y - 11, number(names[at], 'y') - 13);
      return { x: 0, y: top, width, height: y + 11 - top };
    });
    const place = (y) => bands.findIndex((band) => y >= band.y && y < band.y + band.height);
    bands.forEach((band, at) => {
      if (!timed[at]) return;
      svg.prepend(drawn('rect', { ...band, class: 'band' }));
      const veil = drawn('rect', { ...band, class: 'veil' });
      svg.append(veil);
      veils.push([veil, timed[at]]);
    });
    svg.classList.add('opens');
    svg.addEventListener('click', (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const row = timed[place(point.y)];
      if (row) show(placeOf(row));
    });
  });

  // Filter and sort.
  const table = document.querySelector('table.figures');
  if (table) {
    const filter = el('input', { type: 'search', placeholder: 'filter: lock, wake, tokio …', 'aria-label': 'filter the figures' });
    const count = el('span', { class: 'aside', role: 'status' });
    const theme = el('button', { type: 'button', title: 'light or dark' }, '◐');
    document.querySelector('header').append(el('div', { class: 'tools' }, filter, count, theme));
    const text = rows.map((row) => {
      const figure = data.figures[row.dataset.figure];
      return `${row.textContent} ${figure.rows.map(({ name }) => name).join(' ')}`.toLowerCase();
    });
    const groups = all('tbody', table);
    const apply = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const fits = text.map((it) => words.every((word) => it.includes(word)));
      rows.forEach((row, at) => { row.hidden = !fits[at]; });
      veils.forEach(([veil, row]) => veil.classList.toggle('drawn', row.hidden));
      groups.forEach((group) => { group.hidden = !all('tr[data-figure]', group).some((row) => !row.hidden); });
      const left = fits.filter(Boolean).length;
      count.textContent = words.length ? `${left} of ${rows.length}` : '';
    };
    filter.addEventListener('input', apply);

    const homes = rows.map((row) => row.parentNode);
    const sorted = el('tbody');
    const value = (row, key) => {
      const it = data.figures[row.dataset.figure].rows[row.dataset.row];
      const found = { name: data.figures[row.dataset.figure].id, floor: it.floor?.ratio, peer: it.peer?.ratio, warning: (it.warnings || []).length }[key] ?? it[key];
      return found ?? null;
    };
    const order = (key, down) => {
      if (!key) {
        rows.forEach((row, at) => homes[at].append(row));
        sorted.remove();
      } else {
        table.append(sorted);
        const known = [...rows].sort((a, b) => {
          const [left, right] = [value(a, key), value(b, key)];
          if (left === null || right === null) return (left === null) - (right === null);
          return (left < right ? -1 : left > right ? 1 : 0) * (down ? -1 : 1);
        });
        sorted.append(...known);
      }
      groups.forEach((group) => group.classList.toggle('emptied', Boolean(key)));
      apply();
    };
    const heads = all('thead th', table);
    const keys = ['name', 'median', 'p99', 'rate', 'floor', 'peer', 'cpus', 'warning'];
    heads.forEach((head, at) => {
      const button = el('button', { type: 'button', title: 'sort' }, ...head.childNodes);
      head.replaceChildren(button);
      button.addEventListener('click', () => {
        const was = head.getAttribute('aria-sort');
        heads.forEach((other) => other.removeAttribute('aria-sort'));
        const next = was === 'ascending' ? 'descending' : was ? null : 'ascending';
        if (next) head.setAttribute('aria-sort', next);
        order(next && keys[at], next === 'descending');
      });
    });

    // Light or dark, whatever the system prefers.
    const dark = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])
      .filter((rule) => rule.media && rule.media.mediaText.includes('prefers-color-scheme: dark'));
    let isDark = matchMedia('(prefers-color-scheme: dark)').matches;
    theme.addEventListener('click', () => {
      isDark = !isDark;
      dark.forEach((rule) => { rule.media.mediaText = isDark ? 'screen' : 'not all'; });
      document.documentElement.style.colorScheme = isDark ? 'dark' : 'light';
    });

    addEventListener('keydown', (event) => {
      if (dialog.open || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === 'Escape' && document.activeElement === filter) { filter.value = ''; apply(); filter.blur(); }
      if (document.activeElement === filter) return;
      if (event.key === '/') { event.preventDefault(); filter.focus(); }
      if (event.key === 'j' || event.key === 'k') {
        const seen = all('tr[data-figure]', table).filter((row) => !row.hidden);
        const at = seen.indexOf(document.activeElement);
        const next = seen[Math.min(seen.length - 1, Math.max(0, at + (event.key === 'j' ? 1 : -1)))];
        if (next) next.focus();
      }
    });
  }
  wanted();
})();

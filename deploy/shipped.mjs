/** Development dependencies that the dashboard's build contains, in addition to their dependencies. */
const dashboard = [
  '@tanstack/react-query',
  '@tanstack/react-router',
  '@tanstack/react-virtual',
  'openapi-fetch',
  'react',
  'react-dom',
  'uplot',
]

/**
 * Returns the paths of a lock file's packages that are part of the product: the installed ones, and
 * those in gateway/web/dist.
 */
export function listShipped(packages) {
  const paths = Object.keys(packages).filter((path) => path !== '')
  const shipped = new Set(paths.filter((path) => !packages[path].dev))
  const waiting = dashboard.map((name) => `node_modules/${name}`).filter((path) => packages[path])
  const bundled = new Set(waiting)
  for (const path of waiting) {
    const names = Object.keys(packages[path].dependencies ?? {})
    for (const found of names.map((name) => resolve(packages, path, name)))
      if (found !== undefined && !bundled.has(found)) {
        bundled.add(found)
        waiting.push(found)
      }
  }
  return shipped.union(bundled)
}

/** The path of the package that `from` gets as `name`, as Node looks for it. */
function resolve(packages, from, name) {
  const folders = from.split('/node_modules/')
  const parents = folders.map((_, index) => folders.slice(0, folders.length - index))
  return [...parents.map((parts) => parts.join('/node_modules/') + '/'), '']
    .map((folder) => `${folder}node_modules/${name}`)
    .find((path) => packages[path])
}

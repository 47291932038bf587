import type { App } from './app.ts'

/**
 * Records routes that are added later. Returns a function from a path to its methods; an unknown
 * path has an empty list.
 */
export function allowedMethods(app: App): (url: string | undefined) => string[] {
  const known = new Map<string, { readonly path: RegExp; readonly methods: Set<string> }>()
  app.addHook('onRoute', ({ url, method }) => {
    const entry = known.get(url) ?? { path: pathPattern(url), methods: new Set() }
    known.set(url, entry)
    for (const name of [method].flat()) entry.methods.add(name)
  })
  return (url) => {
    const path = url?.split('?')[0] ?? ''
    const entry = [...known.values()].find(({ path: pattern }) => pattern.test(path))
    return [...(entry?.methods ?? [])].sort()
  }
}

function pathPattern(template: string): RegExp {
  const segments = template
    .split('/')
    .map((part) => (part.startsWith(':') ? '[^/]+' : part.replaceAll('.', '\\.')))
  return new RegExp(`^${segments.join('/')}$`)
}

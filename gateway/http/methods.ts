import type { App } from './listener.ts'

/** Remembers the routes added from now on; gives the methods that a path knows, none when unknown. */
export function allowedMethods(app: App): (url: string | undefined) => string[] {
  const known = new Map<string, { readonly path: RegExp; readonly methods: Set<string> }>()
  app.addHook('onRoute', ({ url, method }) => {
    const entry = known.get(url) ?? { path: pathPattern(url), methods: new Set() }
    known.set(url, entry)
    for (const name of [method].flat()) entry.methods.add(name)
  })
  return (url) => {
    const path = url?.split('?')[0] ?? ''
    const found = [...known.values()].find((entry) => entry.path.test(path))
    return [...(found?.methods ?? [])].sort()
  }
}

function pathPattern(template: string): RegExp {
  const segments = template
    .split('/')
    .map((part) => (part.startsWith(':') ? '[^/]+' : part.replaceAll('.', '\\.')))
  return new RegExp(`^${segments.join('/')}$`)
}

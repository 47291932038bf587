import { enableCompileCache, flushCompileCache } from 'node:module'
import { fileURLToPath } from 'node:url'
import { fillCollectorCache } from '../cli/commands/collector.ts'

/**
 * Loads the code of every process and stores it compiled, without types, where the tollgate command
 * looks for it. The build of the image runs it, because a container cannot write to its image. The
 * cache serves the same Node, user and kind of processor; others compile at each start.
 */
const cache = fileURLToPath(new URL('../../node_modules/.cache/tollgate', import.meta.url))
const programs = [
  '../main.ts',
  '../../core/app.ts',
  '../../gateway/server.ts',
  '../../sidecar/server.ts',
]

enableCompileCache(cache)
for (const program of programs) await import(program)
flushCompileCache()
fillCollectorCache()

import { chmod, chown, mkdir, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { findProgram, nobody } from '../../support/run/programs.ts'

/** Creates a folder of the user who runs the programs. */
export async function makeFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true })
  if (nobody) await chown(folder, nobody.uid, nobody.gid)
  await chmod(folder, 0o700)
}

/** Writes a file of the user who runs the programs. */
export async function writeOwned(file: string, text: string): Promise<void> {
  await writeFile(file, text, { mode: 0o600 })
  if (nobody) await chown(file, nobody.uid, nobody.gid)
}

export function programOf(name: string): string {
  const path = findProgram(name)
  if (path === undefined) throw new Error(`${name} is not installed (test/README.md)`)
  return path
}

/** Waits until the condition is true. A failed check counts as false. */
export async function untilTrue(
  what: string,
  { withinMs, isSo }: { readonly withinMs: number; readonly isSo: () => Promise<boolean> },
): Promise<void> {
  for (const until = Date.now() + withinMs; ; await sleep(200)) {
    if (await isSo().catch(() => false)) return
    if (Date.now() > until) throw new Error(`not in ${withinMs / 1000} s: ${what}`)
  }
}

import { vi } from 'vitest'
import { main } from '../../../deploy/cli/main.ts'

/** Runs a command in this process; returns its output and exit code. */
export async function tollgate(...argv: string[]): Promise<{ code: number; text: string }> {
  const printed: string[] = []
  const keep = (chunk: unknown) => printed.push(String(chunk)) > 0
  const spies = [process.stdout, process.stderr].map((stream) =>
    vi.spyOn(stream, 'write').mockImplementation(keep),
  )
  try {
    return { code: await main(argv), text: printed.join('') }
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
}

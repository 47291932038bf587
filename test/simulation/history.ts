/** The events of a simulation, as lines of text. Kept only if they will be read. */
export interface History {
  note(at: number, text: string): void
  readonly lines: readonly string[]
}

export function createHistory(isKept: boolean): History {
  const lines: string[] = []
  return {
    lines,
    note: (at, text) => {
      if (isKept) lines.push(`${(at / 1_000).toFixed(3).padStart(9)} s  ${text}`)
    },
  }
}

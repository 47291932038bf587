import { readFileSync } from 'node:fs'

export interface Sample {
  readonly seconds: number
  readonly mebibytes: number
}

/** Returns the resident memory of a process in MiB; null if it is gone. */
export function residentMebibytes(pid: number): number | null {
  try {
    const text = readFileSync(`/proc/${pid}/status`, 'utf8')
    return Number(/^VmRSS:\s+(\d+) kB/m.exec(text)?.[1]) / 1024
  } catch {
    return null
  }
}

export interface Growth {
  readonly first: number
  readonly last: number
  /** MiB per hour, from the lowest value of the middle third to that of the last third. */
  readonly perHour: number
  /** Whether that is more than a twentieth and 8 MiB. */
  readonly isGrowing: boolean
}

const shareMax = 0.05
const mebibytesMax = 8

/**
 * Compares the lowest values, because garbage raises all others. Ignores the first third, in which
 * caches fill and the heap finds its size.
 */
export function measureGrowth(samples: readonly Sample[]): Growth {
  const third = Math.floor(samples.length / 3)
  const middle = findLowest(samples.slice(third, 2 * third))
  const last = findLowest(samples.slice(2 * third))
  const grown = last.mebibytes - middle.mebibytes
  const hours = (last.seconds - middle.seconds) / 3600
  return {
    first: samples[0]?.mebibytes ?? 0,
    last: samples.at(-1)?.mebibytes ?? 0,
    perHour: hours > 0 ? grown / hours : 0,
    isGrowing: grown > Math.max(mebibytesMax, middle.mebibytes * shareMax),
  }
}

const findLowest = (samples: readonly Sample[]): Sample =>
  samples.reduce((lowest, sample) => (sample.mebibytes < lowest.mebibytes ? sample : lowest), {
    seconds: 0,
    mebibytes: Infinity,
  })

/** Samples the processes every `everyMs` until `stop`, which returns the samples by name. */
export function sampleMemory(
  members: readonly { readonly name: string; pid(): number }[],
  everyMs: number,
) {
  const samples = new Map<string, Sample[]>(members.map(({ name }) => [name, []]))
  const started = performance.now()
  const take = (): void => {
    const seconds = (performance.now() - started) / 1000
    for (const { name, pid } of members) {
      const mebibytes = residentMebibytes(pid())
      if (mebibytes !== null) samples.get(name)?.push({ seconds, mebibytes })
    }
  }
  take()
  const timer = setInterval(take, everyMs)
  return {
    stop: (): ReadonlyMap<string, readonly Sample[]> => {
      clearInterval(timer)
      return samples
    },
  }
}

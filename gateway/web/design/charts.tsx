import { type ReactNode, useState } from 'react'
import { Micros } from '../ui/amount.tsx'
import { formatMicros } from '../ui/amounts.ts'
import { BarChart } from '../ui/bar-chart.tsx'
import { Legend } from '../ui/usage/legend.tsx'
import { BalanceFigures, describeAccess } from '../ui/money/balance-figures.tsx'
import { Refused } from '../ui/money/refused.tsx'
import { Connection, Minute } from '../ui/usage/last-minute.tsx'
import type { Sums } from '../ui/usage/figures.ts'
import { RowPages, ShareTable } from '../ui/usage/share-table.tsx'

const cents = [120, 0, 340, 560, 90, 410, 230]
const dayAt = (index: number): number => Date.UTC(2026, 2, 1 + index) / 1e3
const chart = {
  at: cents.map((_, index) => dayAt(index)),
  layers: [cents.map((value) => value / 100)],
  describe: (index: number): string =>
    `${new Date(dayAt(index) * 1e3).toISOString().slice(0, 10)} (UTC): ${formatMicros(`${(cents[index] ?? 0) * 10_000}`)}`,
}

const layerNames = ['sdxl', 'flux', 'whisper', 'llama', 'wan', 'All further models']
const layers = layerNames.map((_, index) => cents.map((value) => value / (100 + 60 * index)))

const toSums = (requestCount: number, micros: number): Sums => ({
  requestCount,
  networkFeeUsdMicros: `${micros}`,
  ownerChargeUsdMicros: `${micros}`,
  platformFeeUsdMicros: `${micros / 10}`,
  endUserBillableUsdMicros: `${micros * 2}`,
})

const rows = [
  { key: 'sdxl', name: 'text-to-image', details: ['sdxl'], sums: toSums(120, 9_000_000) },
  { key: 'whisper', name: 'audio-to-text', details: ['whisper'], sums: toSums(30, 1_000_000) },
]

export const Charts = (): ReactNode => (
  <>
    <section className="card" aria-labelledby="chart">
      <h2 id="chart">Chart</h2>
      <BarChart {...chart} isMoney />
      <details>
        <summary>As a table</summary>
        <p>Each chart has its figures as a table here.</p>
      </details>
    </section>
    <section className="card" aria-labelledby="layers">
      <h2 id="layers">Chart of layers</h2>
      <Legend layers={layerNames.map((name) => ({ key: name, name }))} />
      <BarChart {...chart} layers={layers} isMoney />
    </section>
    <section className="card" aria-labelledby="shares">
      <h2 id="shares">Shares of a total</h2>
      <ShareTable
        label="Table of shares"
        head="Pipeline"
        columns={['Model']}
        rows={rows}
        totals={toSums(150, 10_000_000)}
      />
      <RowPages page={1} size={2} total={5} onPage={() => undefined} />
    </section>
    <section className="card" aria-labelledby="totals">
      <h2 id="totals">Totals</h2>
      <dl className="stats">
        <div>
          <dt>Tickets</dt>
          <dd>
            1,204<small>+12 %, 1,075 before</small>
          </dd>
        </div>
        <div>
          <dt>Network cost</dt>
          <dd>
            $361.20<small>no tickets before</small>
          </dd>
        </div>
      </dl>
    </section>
    <section className="card" aria-labelledby="left">
      <h2 id="left">Balance of a user</h2>
      <BalanceFigures balance={balance} access={describeAccess(false)}>
        <div>
          <dt>Credit ever given</dt>
          <dd>
            <Micros value="5000000" />
          </dd>
        </div>
      </BalanceFigures>
      <Refused refusal="insufficient_balance" reader="member" />
      <Refused refusal={null} reader="user" />
    </section>
    <Now />
  </>
)

const balance = {
  remainingUsdMicros: '0',
  balanceUsdMicros: '250000',
  consumedUsdMicros: '4750000',
}

/** Charges of the last minute, and the states of their stream. */
function Now(): ReactNode {
  const [now] = useState(() => Math.floor(Date.now() / 1e3))
  const minute = [31, 10, 9, 3].map((ago) => ({
    at: now - ago,
    tickets: 1,
    attos: BigInt(ago) * 10n ** 16n,
  }))
  return (
    <section className="card" aria-labelledby="now">
      <h2 id="now">The last minute</h2>
      <div className="row">
        {(['connecting', 'live', 'reconnecting', 'paused', 'hidden'] as const).map((state) => (
          <Connection key={state} state={state} />
        ))}
      </div>
      <Minute minute={minute} since={now - 60} isRunning={false} />
    </section>
  )
}

import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { createQueryClient } from './api/session/query-client.ts'
import { createAppRouter } from './router.tsx'
import { applyTheme, readTheme } from './ui/theme.ts'
import './ui/ui.css'

applyTheme(readTheme())
const container = document.getElementById('root')
if (!container) throw new Error('the page has no #root')
createRoot(container).render(
  <StrictMode>
    <QueryClientProvider client={createQueryClient()}>
      <RouterProvider router={createAppRouter()} />
    </QueryClientProvider>
  </StrictMode>,
)
